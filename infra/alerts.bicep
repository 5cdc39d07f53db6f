// Alerts for operators. docs/operations.md has the remedy for each.
param location string
param tags object
param token string
param actionGroupId string
param serviceBusId string
param insightsId string
param dataTopicId string
param jobsTopicId string
param vaultTopicId string
param hoursWithoutSuccess int

resource deadLetters 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-dead-letters-${token}'
  location: 'global'
  tags: tags
  properties: {
    description: 'A run, a delivery or a message gave up: see the dead-letter queue that the alert names.'
    severity: 1
    enabled: true
    scopes: [serviceBusId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'deadLetters'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'DeadletteredMessages'
          metricNamespace: 'Microsoft.ServiceBus/namespaces'
          dimensions: [{ name: 'EntityName', operator: 'Include', values: ['*'] }]
          timeAggregation: 'Maximum'
          operator: 'GreaterThan'
          threshold: 0
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

// Service Bus has no metric of a message's age: a queue of events that was never empty for half an
// hour holds one that old, or is fed faster than it is drained.
resource queueAge 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'alert-queue-age-${token}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Events wait: the app does not run, or falls behind.'
    severity: 2
    enabled: true
    scopes: [serviceBusId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT30M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'waitingEvents'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'ActiveMessages'
          metricNamespace: 'Microsoft.ServiceBus/namespaces'
          dimensions: [{ name: 'EntityName', operator: 'Include', values: ['blob-events', 'job-events'] }]
          timeAggregation: 'Minimum'
          operator: 'GreaterThan'
          threshold: 0
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

resource undelivered 'Microsoft.Insights/metricAlerts@2018-03-01' = [for (topicId, index) in [dataTopicId, jobsTopicId, vaultTopicId]: {
  name: 'alert-undelivered-events-${index}-${token}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Event Grid dead-lettered events: see container dead-letter-events. Reconciliation finds what they were about.'
    severity: 2
    enabled: true
    scopes: [topicId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'deadLetteredEvents'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'DeadLetteredCount'
          metricNamespace: 'Microsoft.EventGrid/systemTopics'
          timeAggregation: 'Total'
          operator: 'GreaterThan'
          threshold: 0
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}]

resource noSuccess 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = if (hoursWithoutSuccess > 0) {
  name: 'alert-no-success-${token}'
  location: location
  tags: tags
  properties: {
    displayName: 'No model for too long'
    description: 'No run has succeeded within the hours that the deployment allows.'
    severity: 2
    enabled: true
    scopes: [insightsId]
    evaluationFrequency: 'PT1H'
    // Azure takes 6 hours, or 1 or 2 days, but nothing between them.
    windowSize: hoursWithoutSuccess < 24 ? 'PT${hoursWithoutSuccess}H' : 'P${hoursWithoutSuccess / 24}D'
    criteria: {
      allOf: [
        {
          // deliver_notification logs `<run>:succeeded:<receiver>: delivered`.
          query: 'traces | where message has "succeeded" and message endswith ": delivered"'
          timeAggregation: 'Count'
          operator: 'LessThan'
          threshold: 1
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: [actionGroupId] }
  }
}
