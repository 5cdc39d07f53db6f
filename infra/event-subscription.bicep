// Events of a system topic to a Service Bus queue, delivered and dead-lettered by the topic's
// identity: no webhook, no handshake, no key, and no function has to be there first.
param topicName string
param subscriptionName string
param queueId string
param includedEventTypes array
param subjectBeginsWith string
param deadLetterAccountId string
param deadLetterContainer string

resource topic 'Microsoft.EventGrid/systemTopics@2025-02-15' existing = {
  name: topicName
}

resource subscription 'Microsoft.EventGrid/systemTopics/eventSubscriptions@2025-02-15' = {
  parent: topic
  name: subscriptionName
  properties: {
    eventDeliverySchema: 'CloudEventSchemaV1_0'
    deliveryWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      destination: { endpointType: 'ServiceBusQueue', properties: { resourceId: queueId } }
    }
    filter: { includedEventTypes: includedEventTypes, subjectBeginsWith: subjectBeginsWith }
    retryPolicy: { maxDeliveryAttempts: 30, eventTimeToLiveInMinutes: 1440 }
    deadLetterWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      deadLetterDestination: {
        endpointType: 'StorageBlob'
        properties: { resourceId: deadLetterAccountId, blobContainerName: deadLetterContainer }
      }
    }
  }
}
