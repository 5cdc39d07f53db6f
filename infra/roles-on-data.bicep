// The rows of roles.json on the containers of data and records, which may be in another resource group.
param roles array
param principals object
@allowed(['User', 'ServicePrincipal'])
param deployerType string
param accountName string
param landingContainer string
param recordsContainer string

// A row for a principal that this deployment does not have is left out.
var rows = filter(roles, row => !empty(principals[row.principal]))

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' existing = {
  parent: account
  name: 'default'
}

resource landing 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' existing = {
  parent: blobs
  name: landingContainer
}

var onLanding = filter(rows, row => row.scope == 'landing')
resource landingRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onLanding: {
  scope: landing
  name: guid(landing.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource records 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' existing = {
  parent: blobs
  name: recordsContainer
}

var onRecords = filter(rows, row => row.scope == 'records')
resource recordsRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onRecords: {
  scope: records
  name: guid(records.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

output region string = account.location
