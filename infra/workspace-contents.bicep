// Datastores and clusters, in a new or an existing workspace. Datastores hold no credential: jobs
// read with the cluster's identity.
param location string
param tags object
param workspaceName string
param clusters array
param clusterIdentityId string
param isPrivate bool
param clusterSubnetId string
param datastores array

resource workspace 'Microsoft.MachineLearningServices/workspaces@2025-06-01' existing = {
  name: workspaceName
}

resource datastore 'Microsoft.MachineLearningServices/workspaces/datastores@2025-06-01' = [for each in datastores: {
  parent: workspace
  name: each.name
  properties: {
    datastoreType: 'AzureBlob'
    accountName: each.accountName
    containerName: each.containerName
    endpoint: environment().suffixes.storage
    protocol: 'https'
    credentials: { credentialsType: 'None' }
    serviceDataAccessAuthIdentity: 'None'
  }
}]

resource cluster 'Microsoft.MachineLearningServices/workspaces/computes@2025-06-01' = [for each in clusters: {
  parent: workspace
  name: each.name
  location: location
  tags: tags
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${clusterIdentityId}': {} } }
  properties: {
    computeType: 'AmlCompute'
    disableLocalAuth: true
    properties: {
      osType: 'Linux'
      vmSize: each.size
      vmPriority: each.priority
      scaleSettings: { minNodeCount: 0, maxNodeCount: each.maxNodes, nodeIdleTimeBeforeScaleDown: 'PT5M' }
      remoteLoginPortPublicAccess: 'Disabled'
      enableNodePublicIp: !isPrivate
      subnet: isPrivate ? { id: clusterSubnetId } : null
    }
  }
}]
