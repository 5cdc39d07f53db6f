// The custom topic that Landfall publishes what happens to runs on.
param location string
param tags object
param topicName string
param isPrivate bool

resource topic 'Microsoft.EventGrid/topics@2025-02-15' = {
  name: topicName
  location: location
  tags: tags
  properties: {
    inputSchema: 'CloudEventSchemaV1_0'
    disableLocalAuth: true
    minimumTlsVersionAllowed: '1.2'
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
  }
}

output id string = topic.id
output endpoint string = topic.properties.endpoint
