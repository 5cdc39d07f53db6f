// Warns at 80 % of what was spent and at 100 % of what is forecast. It stops nothing.
param amount int
param startDate string
param actionGroupId string
param alertEmail string

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: 'landfall'
  properties: {
    amount: amount
    category: 'Cost'
    timeGrain: 'Monthly'
    timePeriod: { startDate: startDate }
    notifications: {
      spent: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: empty(alertEmail) ? [] : [alertEmail]
        contactRoles: ['Owner']
        contactGroups: [actionGroupId]
      }
      forecast: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: empty(alertEmail) ? [] : [alertEmail]
        contactRoles: ['Owner']
        contactGroups: [actionGroupId]
      }
    }
  }
}
