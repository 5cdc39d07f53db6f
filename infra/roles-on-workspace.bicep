// The rows of roles.json on the workspace, its account and its registry, which may be in another
// resource group.
param roles array
param principals object
@allowed(['User', 'ServicePrincipal'])
param deployerType string
param workspaceName string
param accountName string
param registryName string

// A row for a principal that this deployment does not have is left out.
var rows = filter(roles, row => !empty(principals[row.principal]))

resource workspace 'Microsoft.MachineLearningServices/workspaces@2025-06-01' existing = {
  name: workspaceName
}

var onWorkspace = filter(rows, row => row.scope == 'workspace')
resource workspaceRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onWorkspace: {
  scope: workspace
  name: guid(workspace.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource workspaceAccount 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName
}

var onWorkspaceAccount = filter(rows, row => row.scope == 'workspaceAccount')
resource workspaceAccountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onWorkspaceAccount: {
  scope: workspaceAccount
  name: guid(workspaceAccount.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource registry 'Microsoft.ContainerRegistry/registries@2025-04-01' existing = {
  name: registryName
}

var onRegistry = filter(rows, row => row.scope == 'registry')
resource registryRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onRegistry: {
  scope: registry
  name: guid(registry.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

output region string = workspace.location
