// One identity for the app and one for the clusters: training code may do less than the app.
param location string
param tags object
param token string

resource app 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: 'id-app-${token}'
  location: location
  tags: tags
}

resource cluster 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: 'id-cluster-${token}'
  location: location
  tags: tags
}

output appId string = app.id
output appClientId string = app.properties.clientId
output appPrincipalId string = app.properties.principalId
output clusterId string = cluster.id
output clusterName string = cluster.name
output clusterPrincipalId string = cluster.properties.principalId
