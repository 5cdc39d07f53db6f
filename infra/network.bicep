// The virtual network of `network=private`: a subnet for the app, one for the clusters, one for the
// private endpoints, the zones that resolve to them, and one way out. New networks have none by default,
// and the app calls Azure Resource Manager and webhooks; nodes fetch base images and packages.
param location string
param tags object
param token string

var zones = [
  { key: 'blob', name: 'privatelink.blob.${environment().suffixes.storage}' }
  { key: 'queue', name: 'privatelink.queue.${environment().suffixes.storage}' }
  { key: 'table', name: 'privatelink.table.${environment().suffixes.storage}' }
  { key: 'file', name: 'privatelink.file.${environment().suffixes.storage}' }
  { key: 'serviceBus', name: 'privatelink.servicebus.windows.net' }
  { key: 'eventGrid', name: 'privatelink.eventgrid.azure.net' }
  { key: 'vault', name: 'privatelink.vaultcore.azure.net' }
  { key: 'registry', name: 'privatelink.azurecr.io' }
  { key: 'workspace', name: 'privatelink.api.azureml.ms' }
  { key: 'notebooks', name: 'privatelink.notebooks.azure.net' }
]

resource address 'Microsoft.Network/publicIPAddresses@2024-07-01' = {
  name: 'pip-${token}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

resource wayOut 'Microsoft.Network/natGateways@2024-07-01' = {
  name: 'ng-${token}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIpAddresses: [{ id: address.id }] }
}

resource network 'Microsoft.Network/virtualNetworks@2024-07-01' = {
  name: 'vnet-${token}'
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: ['10.0.0.0/16'] }
    subnets: [
      { name: 'endpoints', properties: { addressPrefix: '10.0.1.0/24', privateEndpointNetworkPolicies: 'Disabled' } }
      {
        name: 'app'
        properties: {
          addressPrefix: '10.0.2.0/24'
          natGateway: { id: wayOut.id }
          // Flex Consumption's instances; provider Microsoft.App must be registered.
          delegations: [{ name: 'flex-consumption', properties: { serviceName: 'Microsoft.App/environments' } }]
        }
      }
      { name: 'clusters', properties: { addressPrefix: '10.0.4.0/22', natGateway: { id: wayOut.id } } }
    ]
  }
}

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = [for each in zones: {
  name: each.name
  location: 'global'
  tags: tags
}]

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [for (each, index) in zones: {
  parent: zone[index]
  name: 'link-${token}'
  location: 'global'
  properties: { registrationEnabled: false, virtualNetwork: { id: network.id } }
}]

output name string = network.name
output endpointsSubnetId string = '${network.id}/subnets/endpoints'
output appSubnetId string = '${network.id}/subnets/app'
output clustersSubnetId string = '${network.id}/subnets/clusters'
output zoneIds object = toObject(zones, each => each.key, each => resourceId('Microsoft.Network/privateDnsZones', each.name))
