// The queues and the topic of infra/local/Config.json; `make check-infra` compares both.
param location string
param tags object
param namespaceName string
param isPrivate bool

var lock = 'PT1M'
var deliveries = 10
var duplicateWindow = 'P2D'
// Alerts that nobody receives do not pile up.
var alertsKept = 'P14D'

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: namespaceName
  location: location
  tags: tags
  // Private endpoints need Premium.
  sku: isPrivate ? { name: 'Premium', tier: 'Premium', capacity: 1 } : { name: 'Standard', tier: 'Standard' }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
  }
}

// Event Grid delivers as a trusted service.
resource firewall 'Microsoft.ServiceBus/namespaces/networkRuleSets@2024-01-01' = if (isPrivate) {
  parent: namespace
  name: 'default'
  properties: {
    defaultAction: 'Deny'
    publicNetworkAccess: 'Disabled'
    trustedServiceAccessEnabled: true
  }
}

resource blobEvents 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'blob-events'
  properties: { lockDuration: lock, maxDeliveryCount: deliveries }
}

resource jobEvents 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'job-events'
  properties: { lockDuration: lock, maxDeliveryCount: deliveries }
}

resource retries 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'retries'
  properties: {
    lockDuration: lock
    maxDeliveryCount: deliveries
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}

resource rollouts 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'rollouts'
  properties: {
    lockDuration: lock
    maxDeliveryCount: deliveries
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}

resource notifications 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'notifications'
  properties: {
    lockDuration: lock
    maxDeliveryCount: deliveries
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}

resource rejectedRuns 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: 'rejected-runs'
  properties: {
    lockDuration: lock
    maxDeliveryCount: deliveries
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}

resource opsAlerts 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: 'ops-alerts'
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}

resource onCall 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = {
  parent: opsAlerts
  name: 'on-call'
  properties: { lockDuration: lock, maxDeliveryCount: deliveries, defaultMessageTimeToLive: alertsKept }
}

resource audit 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = {
  parent: opsAlerts
  name: 'audit'
  properties: { lockDuration: lock, maxDeliveryCount: deliveries, defaultMessageTimeToLive: alertsKept }
}

output id string = namespace.id
output host string = '${namespace.name}.servicebus.windows.net'
output blobEventsId string = blobEvents.id
output jobEventsId string = jobEvents.id
