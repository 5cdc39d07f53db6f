// The premium block blob account that data lands in. It holds the records, too: blobs that are frozen
// as copies are copied within the account.
param location string
param tags object
param accountName string
@allowed(['Premium_LRS', 'Premium_ZRS'])
param sku string
param isPrivate bool

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: accountName
  location: location
  tags: tags
  kind: 'BlockBlobStorage'
  sku: { name: sku }
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

// Versions keep what a frozen manifest names, when a blob is overwritten or deleted afterwards.
resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' = {
  parent: account
  name: 'default'
  properties: {
    isVersioningEnabled: true
    deleteRetentionPolicy: { enabled: true, days: 14 }
    containerDeleteRetentionPolicy: { enabled: true, days: 14 }
  }
}

// Premium accounts have no cooler tier: old versions are deleted, or they cost as much as the data.
resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2025-01-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'old-versions'
          type: 'Lifecycle'
          definition: {
            filters: { blobTypes: ['blockBlob'] }
            actions: { version: { delete: { daysAfterCreationGreaterThan: 90 } } }
          }
        }
        {
          // Decisions on events grow without end, and only `explain` reads them.
          name: 'old-event-decisions'
          type: 'Lifecycle'
          definition: {
            filters: { blobTypes: ['appendBlob'], prefixMatch: ['landfall/events/'] }
            actions: { baseBlob: { delete: { daysAfterModificationGreaterThan: 180 } } }
          }
        }
      ]
    }
  }
  dependsOn: [blobs]
}

output id string = account.id
