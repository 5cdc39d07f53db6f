// The rows of roles.json on the subscription, and the custom roles that they assign. `azd down` leaves
// the definitions: other environments of the subscription use the same ones.
targetScope = 'subscription'

param roles array
param customRoles array
param principals object

var subscriptionScope = subscription().id

resource definition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = [for each in customRoles: {
  name: guid(subscriptionScope, each.role)
  properties: {
    // Names of custom roles are unique in a tenant.
    roleName: '${each.role} (${subscription().subscriptionId})'
    description: each.reason
    type: 'CustomRole'
    permissions: [{ actions: each.actions }]
    assignableScopes: [subscriptionScope]
  }
}]

var onSubscription = filter(roles, row => row.scope == 'subscription')
resource subscriptionRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onSubscription: {
  name: guid(subscriptionScope, principals[row.principal], row.role)
  properties: {
    principalId: principals[row.principal]
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', guid(subscriptionScope, row.role))
    description: row.reason
  }
  dependsOn: [definition]
}]
