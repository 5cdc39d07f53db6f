// The rows of roles.json whose scope is in the new resource group. The table says why each is there.
param roles array
param principals object
@allowed(['User', 'ServicePrincipal'])
param deployerType string
param appAccountName string
param deadLetterContainer string
param serviceBusName string
param eventTopicName string
param vaultName string
param insightsName string
param clusterIdentityName string
@description('Empty where there is no virtual network.')
param networkName string
@description('Empty where the durable backend is a storage account.')
param schedulerName string

// A row for a principal that this deployment does not have is left out.
var rows = filter(roles, row => !empty(principals[row.principal]))

resource appAccount 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: appAccountName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' existing = {
  parent: appAccount
  name: 'default'
}

var onAppAccount = filter(rows, row => row.scope == 'appAccount')
resource appAccountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onAppAccount: {
  scope: appAccount
  name: guid(appAccount.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource deadLetters 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' existing = {
  parent: blobs
  name: deadLetterContainer
}

var onDeadLetters = filter(rows, row => row.scope == 'deadLetters')
resource deadLettersRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onDeadLetters: {
  scope: deadLetters
  name: guid(deadLetters.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: serviceBusName
}

var onServiceBus = filter(rows, row => row.scope == 'serviceBus')
resource serviceBusRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onServiceBus: {
  scope: serviceBus
  name: guid(serviceBus.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource blobEventsQueue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = {
  parent: serviceBus
  name: 'blob-events'
}

var onBlobEventsQueue = filter(rows, row => row.scope == 'blobEventsQueue')
resource blobEventsQueueRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onBlobEventsQueue: {
  scope: blobEventsQueue
  name: guid(blobEventsQueue.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource jobEventsQueue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = {
  parent: serviceBus
  name: 'job-events'
}

var onJobEventsQueue = filter(rows, row => row.scope == 'jobEventsQueue')
resource jobEventsQueueRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onJobEventsQueue: {
  scope: jobEventsQueue
  name: guid(jobEventsQueue.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource eventTopic 'Microsoft.EventGrid/topics@2025-02-15' existing = {
  name: eventTopicName
}

var onEventTopic = filter(rows, row => row.scope == 'eventTopic')
resource eventTopicRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onEventTopic: {
  scope: eventTopic
  name: guid(eventTopic.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource vault 'Microsoft.KeyVault/vaults@2024-11-01' existing = {
  name: vaultName
}

var onVault = filter(rows, row => row.scope == 'vault')
resource vaultRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onVault: {
  scope: vault
  name: guid(vault.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

var onInsights = filter(rows, row => row.scope == 'insights')
resource insightsRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onInsights: {
  scope: insights
  name: guid(insights.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource clusterIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: clusterIdentityName
}

var onClusterIdentity = filter(rows, row => row.scope == 'clusterIdentity')
resource clusterIdentityRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onClusterIdentity: {
  scope: clusterIdentity
  name: guid(clusterIdentity.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]

resource network 'Microsoft.Network/virtualNetworks@2024-07-01' existing = if (!empty(networkName)) {
  name: empty(networkName) ? 'none' : networkName
}

resource clustersSubnet 'Microsoft.Network/virtualNetworks/subnets@2024-07-01' existing = if (!empty(networkName)) {
  parent: network
  name: 'clusters'
}

var onClustersSubnet = filter(rows, row => row.scope == 'clustersSubnet')
resource clustersSubnetRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onClustersSubnet: {
  scope: clustersSubnet
  name: guid(clustersSubnet.id, principals[row.principal], row.role)
  properties: {
    principalId: principals[row.principal]
    principalType: 'ServicePrincipal'
    // A custom role: roles-on-subscription.bicep derives the same name.
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', guid(subscription().id, row.role))
    description: row.reason
  }
}]

resource scheduler 'Microsoft.DurableTask/schedulers@2025-11-01' existing = if (!empty(schedulerName)) {
  name: empty(schedulerName) ? 'none' : schedulerName
}

var onScheduler = filter(rows, row => row.scope == 'scheduler')
resource schedulerRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for row in onScheduler: {
  scope: scheduler
  name: guid(scheduler.id, principals[row.principal], row.roleId)
  properties: {
    principalId: principals[row.principal]
    principalType: row.principal == 'deployer' ? deployerType : 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', row.roleId)
    description: row.reason
  }
}]
