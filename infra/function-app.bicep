// The app on Flex Consumption. docs/app-settings.md explains every setting; `make check-infra` sees
// to it that each is set here and no other. There is no key and no connection string: every
// connection names the identity.
param location string
param tags object
param token string
param identityId string
param identityClientId string
param subnetId string
param packageUrl string
param appAccountName string
param dataBlobUrl string
param workspaceBlobUrl string
param serviceBusHost string
param eventTopicEndpoint string
param workspaceResourceGroup string
param workspaceName string
param dataRegion string
param workspaceRegion string
param clusterIdentityId string
param insightsConnectionString string
param vaultUrl string
param schedulerEndpoint string
param recordsContainer string
param reconcileSchedule string
param modelWatchUrl string
param keepCopiesDays string
param alwaysReadyInstances int

var storageSuffix = environment().suffixes.storage
var appBlobUrl = 'https://${appAccountName}.blob.${storageSuffix}'
var managedIdentity = 'managedidentity'

var settings = {
  AZURE_CLIENT_ID: identityClientId
  AzureWebJobsStorage__credential: managedIdentity
  AzureWebJobsStorage__clientId: identityClientId
  AzureWebJobsStorage__blobServiceUri: appBlobUrl
  AzureWebJobsStorage__queueServiceUri: 'https://${appAccountName}.queue.${storageSuffix}'
  AzureWebJobsStorage__tableServiceUri: 'https://${appAccountName}.table.${storageSuffix}'
  DataStorage__credential: managedIdentity
  DataStorage__clientId: identityClientId
  DataStorage__blobServiceUri: dataBlobUrl
  WorkspaceStorage__credential: managedIdentity
  WorkspaceStorage__clientId: identityClientId
  WorkspaceStorage__blobServiceUri: workspaceBlobUrl
  ServiceBus__credential: managedIdentity
  ServiceBus__clientId: identityClientId
  ServiceBus__fullyQualifiedNamespace: serviceBusHost
  EventGridTopic__endpoint: eventTopicEndpoint
  AZUREML_SUBSCRIPTION_ID: subscription().subscriptionId
  AZUREML_RESOURCE_GROUP: workspaceResourceGroup
  AZUREML_WORKSPACE_NAME: workspaceName
  REGIONS: 'app=${location} data=${dataRegion} workspace=${workspaceRegion}'
  CLUSTER_IDENTITY: clusterIdentityId
  RESOURCE_MANAGER_ENDPOINT: environment().resourceManager
  RECONCILE_SCHEDULE: reconcileSchedule
  PYTHON_THREADPOOL_THREAD_COUNT: '32'
  RECORDS_CONTAINER: recordsContainer
  RECORDS_DATASTORE: 'landfall'
  PIPELINES_FOLDER: '/home/site/wwwroot/pipelines'
  INBOUND_WEBHOOK_SECRET: '@Microsoft.KeyVault(SecretUri=${vaultUrl}secrets/inbound-webhook-secret)'
  MODEL_WATCH_SECRET: '@Microsoft.KeyVault(SecretUri=${vaultUrl}secrets/model-watch-secret)'
  MODEL_WATCH_URL: modelWatchUrl
  KEEP_COPIES_DAYS: keepCopiesDays
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
}

// The hook before packaging writes `storageProvider` to host.json: Azure scales by what stands there.
var schedulerSettings = {
  DURABLE_TASK_SCHEDULER_CONNECTION_STRING: 'Endpoint=${schedulerEndpoint};Authentication=ManagedIdentity;ClientID=${identityClientId}'
}

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  name: 'plan-${token}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: { name: 'FC1', tier: 'FlexConsumption' }
  properties: { reserved: true }
}

resource site 'Microsoft.Web/sites@2024-11-01' = {
  name: 'func-${token}'
  location: location
  tags: union(tags, { 'azd-service-name': 'app' })
  kind: 'functionapp,linux'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${identityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    keyVaultReferenceIdentity: identityId
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packageUrl
          authentication: { type: 'UserAssignedIdentity', userAssignedIdentityResourceId: identityId }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: 2048
        maximumInstanceCount: 40
        alwaysReady: alwaysReadyInstances > 0 ? [{ name: 'durable', instanceCount: alwaysReadyInstances }] : []
        triggers: { http: { perInstanceConcurrency: 8 } }
      }
      runtime: { name: 'python', version: '3.12' }
    }
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
    }
  }
}

resource appSettings 'Microsoft.Web/sites/config@2024-11-01' = {
  parent: site
  name: 'appsettings'
  properties: union(settings, empty(schedulerEndpoint) ? {} : schedulerSettings)
}

resource publishing 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = [for way in ['ftp', 'scm']: {
  parent: site
  name: way
  properties: { allow: false }
}]

output name string = site.name
output url string = 'https://${site.properties.defaultHostName}'
