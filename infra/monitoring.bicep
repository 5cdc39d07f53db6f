// Where telemetry goes, and who is notified of alerts.
param location string
param tags object
param token string
param alertEmail string
@secure()
param alertWebhook string

resource logs 'Microsoft.OperationalInsights/workspaces@2025-02-01' = {
  name: 'log-${token}'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
    features: { disableLocalAuth: true }
    workspaceCapping: { dailyQuotaGb: 1 }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-${token}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: logs.id
    // Local auth stays on: with it off, the spans of Durable Functions' tracing are lost (Azure/
    // azure-functions-durable-extension#3497). The app itself authenticates by its identity.
    DisableLocalAuth: false
  }
}

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-${token}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'landfall'
    enabled: true
    emailReceivers: empty(alertEmail)
      ? []
      : [{ name: 'on-call', emailAddress: alertEmail, useCommonAlertSchema: true }]
    webhookReceivers: empty(alertWebhook)
      ? []
      : [{ name: 'on-call', serviceUri: alertWebhook, useCommonAlertSchema: true }]
  }
}

output insightsId string = insights.id
output insightsName string = insights.name
// It holds an instrumentation key, which names the component and opens nothing to readers.
output insightsConnectionString string = insights.properties.ConnectionString
output actionGroupId string = actionGroup.id
