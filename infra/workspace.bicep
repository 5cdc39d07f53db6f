// An Azure ML workspace with an account and a registry of its own. Its system-assigned identity gets
// its roles from the service itself; ours would collide with those.
param location string
param tags object
param workspaceName string
param accountName string
param registryName string
param vaultId string
param insightsId string
param isPrivate bool
@description('Cluster that builds images where the registry is not on the internet; empty: the service builds them.')
param imageBuildCluster string

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: accountName
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: 'Standard_LRS' }
  properties: {
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    dnsEndpointType: 'Standard'
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: { bypass: 'AzureServices', defaultAction: isPrivate ? 'Deny' : 'Allow' }
  }
}

resource registry 'Microsoft.ContainerRegistry/registries@2025-04-01' = {
  name: registryName
  location: location
  tags: tags
  // Private endpoints need Premium.
  sku: { name: isPrivate ? 'Premium' : 'Basic' }
  properties: {
    adminUserEnabled: false
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkRuleBypassOptions: 'AzureServices'
  }
}

resource workspace 'Microsoft.MachineLearningServices/workspaces@2025-06-01' = {
  name: workspaceName
  location: location
  tags: tags
  identity: { type: 'SystemAssigned' }
  sku: { name: 'Basic', tier: 'Basic' }
  properties: {
    friendlyName: workspaceName
    storageAccount: account.id
    keyVault: vaultId
    containerRegistry: registry.id
    applicationInsights: insightsId
    systemDatastoresAuthMode: 'Identity'
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    imageBuildCompute: empty(imageBuildCluster) ? null : imageBuildCluster
  }
}

output id string = workspace.id
output accountId string = account.id
output registryId string = registry.id
