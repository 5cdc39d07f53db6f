// The durable backend for more throughput than a storage account gives.
param location string
param tags object
param schedulerName string

resource scheduler 'Microsoft.DurableTask/schedulers@2025-11-01' = {
  name: schedulerName
  location: location
  tags: tags
  properties: {
    // It has no key: only identities with a role reach it.
    ipAllowlist: ['0.0.0.0/0']
    sku: { name: 'Consumption' }
  }
}

resource hub 'Microsoft.DurableTask/schedulers/taskHubs@2025-11-01' = {
  parent: scheduler
  name: 'landfall'
}

output name string = scheduler.name
output endpoint string = scheduler.properties.endpoint
