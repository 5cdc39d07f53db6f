// Everything that Landfall needs, in one resource group. docs/deploy.md is the guide;
// docs/decisions/0016-deployed-by-bicep-with-identity-only.md says why it is built so.
targetScope = 'subscription'

@minLength(1)
@maxLength(40)
@description('Name of the azd environment, such as dev, test or prod. Every name is derived from it.')
param environmentName string

@description('Region of everything that is new.')
@metadata({ azd: { type: 'location' } })
param location string

@description('Name of the resource group; rg-<environment> if empty.')
param resourceGroupName string = ''

@description('Object id of the person or pipeline that deploys: may upload to the landing container and set webhook secrets. Empty: nobody.')
param deployerId string = ''

@description('What kind of principal deploys.')
@allowed(['User', 'ServicePrincipal'])
param deployerType string = 'User'

@description('public: endpoints on the internet, reached by identity only. private: a virtual network, private endpoints, Service Bus Premium.')
@allowed(['public', 'private'])
param network string = 'public'

@description('Redundancy of the accounts that hold data, records and durable state. Not every region has zones.')
@allowed(['LRS', 'ZRS'])
param redundancy string = 'LRS'

@description('Where Durable Functions keeps its state.')
@allowed(['azureStorage', 'durableTaskScheduler'])
param durableBackend string = 'azureStorage'

@description('Existing premium block blob account that data lands in; a new one if empty. The containers are made in either.')
param dataAccountName string = ''
@description('Its resource group; the new one if empty.')
param dataResourceGroupName string = ''
@description('Existing system topic of that account (Azure allows one per source); a new one if empty.')
param dataTopicName string = ''

@description('Existing Azure ML workspace; a new one if empty.')
param workspaceName string = ''
@description('Its resource group; the new one if empty.')
param workspaceResourceGroupName string = ''
@description('Storage account of the existing workspace, in the same resource group.')
param workspaceAccountName string = ''
@description('Container registry of the existing workspace, in the same resource group.')
param workspaceRegistryName string = ''
@description('Existing system topic of that workspace; a new one if empty.')
param workspaceTopicName string = ''

@description('Clusters of the pipelines: name, size, priority (Dedicated or LowPriority), maxNodes. They start with no node.')
param clusters array

@description('customRole: a custom role lets the app read the quota of the subscription. none: the app cannot read it, so it may request nodes from Azure ML that exceed the quota.')
@allowed(['customRole', 'none'])
param quotaReading string = 'customRole'

@description('later: without event subscriptions, which Event Grid refuses while the roles of their identities are new.')
@allowed(['later', 'now'])
param eventDelivery string = 'now'

@description('NCRONTAB of the reconciliation timer.')
param reconcileSchedule string = '0 */5 * * * *'
@description('Webhook receiver of the example pipeline; empty: none.')
param modelWatchUrl string = ''
@description('With dataset.freeze: copy, how many days (30 or more) the copies of older dataset versions are kept; empty: 400.')
param keepCopiesDays string = ''

@description('Instances for orchestrations that are always ready, and are billed while they wait; 0: none.')
@minValue(0)
@maxValue(40)
param alwaysReadyInstances int = 0

@description('E-mail address that alerts go to; empty: none.')
param alertEmail string = ''
@description('URL that alerts are posted to; empty: none.')
@secure()
param alertWebhook string = ''
@description('Hours without a successful run after which an alert is raised; 0: never.')
@allowed([0, 6, 24, 48])
param hoursWithoutSuccess int = 0
@description('Monthly budget of the resource group in the currency of the subscription; 0: no budget.')
param monthlyBudget int = 200
@description('First day of the month from which the budget counts, which Azure lets nobody change; empty: this month.')
param budgetStart string = ''
@description('This month. Never set it.')
param thisMonth string = utcNow('yyyy-MM-01')

var names = {
  group: empty(resourceGroupName) ? 'rg-${environmentName}' : resourceGroupName
  token: toLower(uniqueString(subscription().id, environmentName, location))
}
var tags = { 'azd-env-name': environmentName }
var isPrivate = network == 'private'
var usesScheduler = durableBackend == 'durableTaskScheduler'
var recordsContainer = 'landfall'
var deadLetterContainer = 'dead-letter-events'
var landingContainer = 'landing'

var dataAccount = empty(dataAccountName) ? 'stdata${names.token}' : dataAccountName
var dataGroup = empty(dataResourceGroupName) ? names.group : dataResourceGroupName
var appAccount = 'stapp${names.token}'
var workspace = empty(workspaceName) ? 'mlw-${names.token}' : workspaceName
var workspaceGroup = empty(workspaceResourceGroupName) ? names.group : workspaceResourceGroupName
var workspaceAccount = empty(workspaceName) ? 'stml${names.token}' : workspaceAccountName
var registry = empty(workspaceName) ? 'cr${names.token}' : workspaceRegistryName
var budgetFrom = empty(budgetStart) ? thisMonth : budgetStart
var vault = 'kv-${names.token}'
var workspaceVault = 'kvml-${names.token}'
var serviceBusName = 'sb-${names.token}'
var eventTopic = 'evgt-${names.token}'

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: names.group
  location: location
  // infra/hooks/network_change.py compares it with what is asked for next time.
  tags: union(tags, { 'landfall-network': network })
}

module identities 'identities.bicep' = {
  scope: group
  params: { location: location, tags: tags, token: names.token }
}

module monitoring 'monitoring.bicep' = {
  scope: group
  params: { location: location, tags: tags, token: names.token, alertEmail: alertEmail, alertWebhook: alertWebhook }
}

module appStorage 'app-storage.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    accountName: appAccount
    sku: 'Standard_${redundancy}'
    isPrivate: isPrivate
    containers: ['app-package', deadLetterContainer]
  }
}

module dataStorage 'data-storage.bicep' = if (empty(dataAccountName)) {
  scope: group
  params: {
    location: location
    tags: tags
    accountName: dataAccount
    sku: 'Premium_${redundancy}'
    isPrivate: isPrivate
  }
}

module dataContainers 'data-containers.bicep' = {
  scope: resourceGroup(dataGroup)
  params: { accountName: dataAccount, containers: [landingContainer, recordsContainer] }
  dependsOn: [group, dataStorage]
}

module keyVault 'key-vault.bicep' = {
  scope: group
  params: { location: location, tags: tags, vaultName: vault, isPrivate: isPrivate }
}

// What is in the workspace's vault, training code can read: secrets of webhooks are in the other one.
module vaultOfWorkspace 'key-vault.bicep' = if (empty(workspaceName)) {
  scope: group
  params: { location: location, tags: tags, vaultName: workspaceVault, isPrivate: isPrivate }
}

module serviceBus 'service-bus.bicep' = {
  scope: group
  params: { location: location, tags: tags, namespaceName: serviceBusName, isPrivate: isPrivate }
}

module customTopic 'event-grid-topic.bicep' = {
  scope: group
  params: { location: location, tags: tags, topicName: eventTopic, isPrivate: isPrivate }
}

module scheduler 'durable-task-scheduler.bicep' = if (usesScheduler) {
  scope: group
  params: { location: location, tags: tags, schedulerName: 'dts-${names.token}' }
}

module newWorkspace 'workspace.bicep' = if (empty(workspaceName)) {
  scope: group
  params: {
    location: location
    tags: tags
    workspaceName: workspace
    accountName: workspaceAccount
    registryName: registry
    vaultId: vaultOfWorkspace!.outputs.id
    insightsId: monitoring.outputs.insightsId
    isPrivate: isPrivate
    imageBuildCluster: isPrivate ? clusters[0].name : ''
  }
}

module virtualNetwork 'network.bicep' = if (isPrivate) {
  scope: group
  params: { location: location, tags: tags, token: names.token }
}

module privateEndpoints 'private-endpoints.bicep' = if (isPrivate) {
  scope: group
  params: {
    location: location
    tags: tags
    subnetId: virtualNetwork!.outputs.endpointsSubnetId
    zoneIds: virtualNetwork!.outputs.zoneIds
    targets: concat(
      [
        { name: '${appAccount}-blob', resourceId: appStorage.outputs.id, part: 'blob', zones: ['blob'] }
        { name: '${appAccount}-queue', resourceId: appStorage.outputs.id, part: 'queue', zones: ['queue'] }
        { name: '${appAccount}-table', resourceId: appStorage.outputs.id, part: 'table', zones: ['table'] }
        { name: '${serviceBusName}-bus', resourceId: serviceBus.outputs.id, part: 'namespace', zones: ['serviceBus'] }
        { name: '${eventTopic}-topic', resourceId: customTopic.outputs.id, part: 'topic', zones: ['eventGrid'] }
        { name: '${vault}-vault', resourceId: keyVault.outputs.id, part: 'vault', zones: ['vault'] }
      ],
      empty(dataAccountName)
        ? [{ name: '${dataAccount}-blob', resourceId: dataStorage!.outputs.id, part: 'blob', zones: ['blob'] }]
        : [],
      empty(workspaceName)
        ? [
            { name: '${workspaceAccount}-blob', resourceId: newWorkspace!.outputs.accountId, part: 'blob', zones: ['blob'] }
            { name: '${workspaceAccount}-file', resourceId: newWorkspace!.outputs.accountId, part: 'file', zones: ['file'] }
            { name: '${workspaceVault}-vault', resourceId: vaultOfWorkspace!.outputs.id, part: 'vault', zones: ['vault'] }
            { name: '${registry}-registry', resourceId: newWorkspace!.outputs.registryId, part: 'registry', zones: ['registry'] }
            { name: '${workspace}-workspace', resourceId: newWorkspace!.outputs.id, part: 'amlworkspace', zones: ['workspace', 'notebooks'] }
          ]
        : []
    )
  }
}

module dataEvents 'event-source.bicep' = {
  scope: resourceGroup(dataGroup)
  params: {
    location: location
    tags: tags
    topicName: empty(dataTopicName) ? 'evgst-data-${names.token}' : dataTopicName
    isNew: empty(dataTopicName)
    sourceId: resourceId(subscription().subscriptionId, dataGroup, 'Microsoft.Storage/storageAccounts', dataAccount)
    topicType: 'Microsoft.Storage.StorageAccounts'
  }
  dependsOn: [group, dataStorage]
}

module jobEvents 'event-source.bicep' = {
  scope: resourceGroup(workspaceGroup)
  params: {
    location: location
    tags: tags
    topicName: empty(workspaceTopicName) ? 'evgst-jobs-${names.token}' : workspaceTopicName
    isNew: empty(workspaceTopicName)
    sourceId: resourceId(subscription().subscriptionId, workspaceGroup, 'Microsoft.MachineLearningServices/workspaces', workspace)
    topicType: 'Microsoft.MachineLearningServices.Workspaces'
  }
  dependsOn: [group, newWorkspace]
}

// Key Vault's events about secrets that expire.
module vaultEvents 'event-source.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    topicName: 'evgst-vault-${names.token}'
    isNew: true
    sourceId: keyVault.outputs.id
    topicType: 'Microsoft.KeyVault.vaults'
  }
}

var principals = {
  app: identities.outputs.appPrincipalId
  cluster: identities.outputs.clusterPrincipalId
  blobEvents: dataEvents.outputs.principalId
  jobEvents: jobEvents.outputs.principalId
  vaultEvents: vaultEvents.outputs.principalId
  deployer: deployerId
}
// Rows of the table that count only where a parameter has a value are left out elsewhere.
var roleTable = loadJsonContent('roles.json')
var roles = filter(roleTable.assignments, row => contains(['always', network, durableBackend, quotaReading], row.when))

module roleAssignments 'roles.bicep' = {
  scope: group
  params: {
    roles: roles
    principals: principals
    deployerType: deployerType
    appAccountName: appAccount
    deadLetterContainer: deadLetterContainer
    serviceBusName: serviceBusName
    eventTopicName: eventTopic
    vaultName: vault
    insightsName: monitoring.outputs.insightsName
    clusterIdentityName: identities.outputs.clusterName
    networkName: isPrivate ? virtualNetwork!.outputs.name : ''
    schedulerName: usesScheduler ? scheduler!.outputs.name : ''
  }
  dependsOn: [appStorage, serviceBus, customTopic, keyVault, subscriptionRoles]
}

module dataRoles 'roles-on-data.bicep' = {
  scope: resourceGroup(dataGroup)
  params: {
    roles: roles
    principals: principals
    deployerType: deployerType
    accountName: dataAccount
    landingContainer: landingContainer
    recordsContainer: recordsContainer
  }
  dependsOn: [dataContainers]
}

module workspaceRoles 'roles-on-workspace.bicep' = {
  scope: resourceGroup(workspaceGroup)
  params: {
    roles: roles
    principals: principals
    deployerType: deployerType
    workspaceName: workspace
    accountName: workspaceAccount
    registryName: registry
  }
  dependsOn: [newWorkspace]
}

// Only the custom roles that this deployment assigns are defined.
var assigned = map(roles, row => row.role)
module subscriptionRoles 'roles-on-subscription.bicep' = if (quotaReading == 'customRole' || isPrivate) {
  params: {
    roles: roles
    customRoles: filter(roleTable.customRoles, each => contains(assigned, each.role))
    principals: principals
  }
}

// A subscription's identity must be allowed to deliver before the subscription is made, and Azure needs
// minutes to know that it is: the first `azd up` makes these in a second provisioning, and last.
module blobSubscription 'event-subscription.bicep' = if (eventDelivery == 'now') {
  scope: resourceGroup(dataGroup)
  params: {
    topicName: dataEvents.outputs.name
    subscriptionName: 'new-data'
    queueId: serviceBus.outputs.blobEventsId
    includedEventTypes: [
      'Microsoft.Storage.BlobCreated'
      'Microsoft.Storage.BlobRenamed'
      'Microsoft.Storage.DirectoryRenamed'
      'Microsoft.Storage.BlobDeleted'
    ]
    subjectBeginsWith: '/blobServices/default/containers/${landingContainer}/'
    deadLetterAccountId: appStorage.outputs.id
    deadLetterContainer: deadLetterContainer
  }
  dependsOn: [roleAssignments, workspaceContents, functionApp]
}

module jobSubscription 'event-subscription.bicep' = if (eventDelivery == 'now') {
  scope: resourceGroup(workspaceGroup)
  params: {
    topicName: jobEvents.outputs.name
    subscriptionName: 'job-state'
    queueId: serviceBus.outputs.jobEventsId
    includedEventTypes: [
      'Microsoft.MachineLearningServices.RunCompleted'
      'Microsoft.MachineLearningServices.RunStatusChanged'
    ]
    subjectBeginsWith: ''
    deadLetterAccountId: appStorage.outputs.id
    deadLetterContainer: deadLetterContainer
  }
  dependsOn: [roleAssignments, workspaceContents, functionApp]
}

module vaultSubscription 'event-subscription.bicep' = if (eventDelivery == 'now') {
  scope: group
  params: {
    topicName: vaultEvents.outputs.name
    subscriptionName: 'secret-expiry'
    queueId: serviceBus.outputs.jobEventsId
    includedEventTypes: [
      'Microsoft.KeyVault.SecretNearExpiry'
      'Microsoft.KeyVault.SecretExpired'
      'Microsoft.KeyVault.SecretNewVersionCreated'
      'Microsoft.KeyVault.CertificateNearExpiry'
      'Microsoft.KeyVault.CertificateExpired'
      'Microsoft.KeyVault.CertificateNewVersionCreated'
      'Microsoft.KeyVault.KeyNearExpiry'
      'Microsoft.KeyVault.KeyExpired'
      'Microsoft.KeyVault.KeyNewVersionCreated'
    ]
    subjectBeginsWith: ''
    deadLetterAccountId: appStorage.outputs.id
    deadLetterContainer: deadLetterContainer
  }
  dependsOn: [roleAssignments, workspaceContents, functionApp]
}

module workspaceContents 'workspace-contents.bicep' = {
  scope: resourceGroup(workspaceGroup)
  params: {
    location: location
    tags: tags
    workspaceName: workspace
    clusters: clusters
    clusterIdentityId: identities.outputs.clusterId
    isPrivate: isPrivate
    clusterSubnetId: isPrivate ? virtualNetwork!.outputs.clustersSubnetId : ''
    datastores: [
      { name: 'landing', accountName: dataAccount, containerName: landingContainer }
      { name: 'landfall', accountName: dataAccount, containerName: recordsContainer }
    ]
  }
  dependsOn: [newWorkspace, workspaceRoles, dataRoles, privateEndpoints]
}

module functionApp 'function-app.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    token: names.token
    identityId: identities.outputs.appId
    identityClientId: identities.outputs.appClientId
    subnetId: isPrivate ? virtualNetwork!.outputs.appSubnetId : ''
    packageUrl: '${appStorage.outputs.blobUrl}app-package'
    appAccountName: appAccount
    dataBlobUrl: 'https://${dataAccount}.blob.${environment().suffixes.storage}'
    workspaceBlobUrl: 'https://${workspaceAccount}.blob.${environment().suffixes.storage}'
    serviceBusHost: serviceBus.outputs.host
    eventTopicEndpoint: customTopic.outputs.endpoint
    workspaceResourceGroup: workspaceGroup
    workspaceName: workspace
    dataRegion: dataRoles.outputs.region
    workspaceRegion: workspaceRoles.outputs.region
    clusterIdentityId: identities.outputs.clusterId
    insightsConnectionString: monitoring.outputs.insightsConnectionString
    vaultUrl: keyVault.outputs.url
    schedulerEndpoint: usesScheduler ? scheduler!.outputs.endpoint : ''
    recordsContainer: recordsContainer
    reconcileSchedule: reconcileSchedule
    modelWatchUrl: modelWatchUrl
    keepCopiesDays: keepCopiesDays
    alwaysReadyInstances: alwaysReadyInstances
  }
  dependsOn: [roleAssignments, subscriptionRoles, privateEndpoints]
}

module alerts 'alerts.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    token: names.token
    actionGroupId: monitoring.outputs.actionGroupId
    serviceBusId: serviceBus.outputs.id
    insightsId: monitoring.outputs.insightsId
    dataTopicId: dataEvents.outputs.id
    jobsTopicId: jobEvents.outputs.id
    vaultTopicId: vaultEvents.outputs.id
    hoursWithoutSuccess: hoursWithoutSuccess
  }
}

module budget 'budget.bicep' = if (monthlyBudget > 0) {
  scope: group
  params: {
    amount: monthlyBudget
    startDate: budgetFrom
    actionGroupId: monitoring.outputs.actionGroupId
    alertEmail: alertEmail
  }
}

// azd keeps outputs as values of its environment; the hooks read them from there.
output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_TENANT_ID string = tenant().tenantId
// Provisioning in a later month gives the budget the same start again.
output LANDFALL_BUDGET_START string = budgetFrom
// The next provisioning makes the event subscriptions; a hook reads whether this one did.
output LANDFALL_EVENT_DELIVERY string = 'now'
output LANDFALL_PROVISIONED_DELIVERY string = eventDelivery
output LANDFALL_APP_NAME string = functionApp.outputs.name
output LANDFALL_URL string = functionApp.outputs.url
output LANDFALL_DATA_URL string = 'https://${dataAccount}.blob.${environment().suffixes.storage}'
output LANDFALL_LANDING_CONTAINER string = landingContainer
output LANDFALL_VAULT_URL string = keyVault.outputs.url
output LANDFALL_WORKSPACE_NAME string = workspace
output LANDFALL_WORKSPACE_RESOURCE_GROUP string = workspaceGroup
output LANDFALL_SUBSCRIPTION_ID string = subscription().subscriptionId
