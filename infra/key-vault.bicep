// A vault: one for secrets of webhooks, and one of its own for an Azure ML workspace, which must have one.
param location string
param tags object
param vaultName string
param isPrivate bool

resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {
  name: vaultName
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    // Without purge protection `azd down --purge` frees the name for the next `azd up`.
    softDeleteRetentionInDays: 7
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: { bypass: 'AzureServices', defaultAction: isPrivate ? 'Deny' : 'Allow' }
  }
}

output id string = vault.id
output url string = vault.properties.vaultUri
