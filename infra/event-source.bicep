// The system topic of a storage account or of a workspace. Azure allows one per source, so that an
// existing one is taken where there is one; it needs a system-assigned identity.
param location string
param tags object
param topicName string
param isNew bool
param sourceId string
param topicType string

resource created 'Microsoft.EventGrid/systemTopics@2025-02-15' = if (isNew) {
  name: topicName
  location: location
  tags: tags
  identity: { type: 'SystemAssigned' }
  properties: { source: sourceId, topicType: topicType }
}

resource existingTopic 'Microsoft.EventGrid/systemTopics@2025-02-15' existing = if (!isNew) {
  name: topicName
}

output id string = isNew ? created!.id : existingTopic!.id
output name string = topicName
output principalId string = isNew ? created!.identity.principalId : existingTopic!.identity.principalId
