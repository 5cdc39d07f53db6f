// One private endpoint for each part of a service that the app or a job reaches.
param location string
param tags object
param subnetId string
param zoneIds object
@description('name, resourceId, part (the group id of private link), zones (keys of zoneIds).')
param targets array

resource endpoint 'Microsoft.Network/privateEndpoints@2024-07-01' = [for target in targets: {
  name: 'pep-${target.name}'
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [
      { name: target.name, properties: { privateLinkServiceId: target.resourceId, groupIds: [target.part] } }
    ]
  }
}]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-07-01' = [for (target, index) in targets: {
  parent: endpoint[index]
  name: 'default'
  properties: {
    privateDnsZoneConfigs: map(target.zones, key => { name: key, properties: { privateDnsZoneId: zoneIds[key] } })
  }
}]
