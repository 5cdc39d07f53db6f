"""host.json: the settings that the real host knows and this host ignores.

They have an effect on Azure only, or not for Python. This module does no I/O.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-host-json,
https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-bindings#host-json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from localazure.configuration_file import Step

_IGNORED: Final = frozenset(
    {
        "$schema",
        "aggregator",
        "concurrency",
        "customHandler",
        "extensionBundle",
        "healthMonitor",
        "logging.applicationInsights",
        "logging.console",
        "logging.fileLoggingMode",
        "managedDependency",
        "singleton",
        "telemetryMode",
        "watchDirectories",
        "watchFiles",
        "extensions.blobs.maxDegreeOfParallelism",
        "extensions.http.dynamicThrottlesEnabled",
        "extensions.http.hsts",
        "extensions.serviceBus.clientRetryOptions",
        "extensions.serviceBus.enableCrossEntityTransactions",
        "extensions.serviceBus.maxBatchWaitTime",
        "extensions.serviceBus.maxConcurrentCallsPerSession",
        "extensions.serviceBus.maxConcurrentSessions",
        "extensions.serviceBus.minMessageBatchSize",
        "extensions.serviceBus.sessionIdleTimeout",
        "extensions.serviceBus.transportType",
        "extensions.serviceBus.webProxy",
        "extensions.durableTask.entityMessageReorderWindowInMinutes",
        "extensions.durableTask.extendedSessionIdleTimeoutInSeconds",
        "extensions.durableTask.extendedSessionsEnabled",
        "extensions.durableTask.localRpcEndpointEnabled",
        "extensions.durableTask.maxQueuePollingInterval",
        "extensions.durableTask.notifications",
        "extensions.durableTask.overridableExistingInstanceStates",
        "extensions.durableTask.storeInputsInOrchestrationHistory",  # the engine always stores them
        "extensions.durableTask.tracing",
        "extensions.durableTask.useGracefulShutdown",
    }
)

# The settings of all providers: Azure Storage, Durable Task Scheduler, MSSQL and Netherite.
_STORAGE_PROVIDER: Final = """
    type connectionName connectionStringName controlQueueBatchSize controlQueueBufferThreshold
    controlQueueVisibilityTimeout maxQueuePollingInterval partitionCount
    trackingStoreConnectionName trackingStoreConnectionStringName trackingStoreNamePrefix
    useLegacyPartitionManagement useTablePartitionManagement workItemQueueVisibilityTimeout
    queueClientMessageEncoding allowReplayingTerminalInstances
    taskEventLockTimeout createDatabaseIfNotExists schemaName
    StorageConnectionName EventHubsConnectionName CacheOrchestrationCursors PartitionManagement
"""
_SAMPLING: Final = """
    isEnabled maxTelemetryItemsPerSecond evaluationInterval initialSamplingPercentage
    samplingPercentageIncreaseTimeout samplingPercentageDecreaseTimeout minSamplingPercentage
    maxSamplingPercentage movingAverageRatio excludedTypes includedTypes
"""
_BELOW: Final = {
    section: frozenset(keys.split())
    for section, keys in {
        "aggregator": "batchSize flushTimeout",
        "concurrency": "dynamicConcurrencyEnabled snapshotPersistenceEnabled",
        "customHandler": "description enableForwardingHttpRequest enableProxyingHttpRequest",
        "extensionBundle": "id version",
        "healthMonitor": "enabled healthCheckInterval healthCheckWindow healthCheckThreshold "
        "counterThreshold",
        "logging.applicationInsights": "dependencyTrackingOptions enableDependencyTracking "
        "enableLiveMetrics enableLiveMetricsFilters enablePerformanceCountersCollection "
        "httpAutoCollectionOptions liveMetricsInitializationDelay samplingSettings "
        "snapshotConfiguration",
        "logging.applicationInsights.samplingSettings": _SAMPLING,
        "logging.console": "isEnabled",
        "managedDependency": "enabled",
        "singleton": "lockPeriod listenerLockPeriod listenerLockRecoveryPollingInterval "
        "lockAcquisitionTimeout lockAcquisitionPollingInterval",
        "extensions.http.hsts": "isEnabled maxAge includeSubDomains excludedHosts preload",
        "extensions.serviceBus.clientRetryOptions": "mode tryTimeout delay maxDelay maxRetries",
        "extensions.durableTask.notifications": "eventGrid",
        "extensions.durableTask.notifications.eventGrid": "topicEndpoint keySettingName "
        "publishRetryCount publishRetryInterval publishRetryHttpStatus publishEventTypes",
        "extensions.durableTask.storageProvider": _STORAGE_PROVIDER,
        "extensions.durableTask.tracing": "traceInputsAndOutputs traceReplayEvents "
        "distributedTracingEnabled distributedTracingProtocol version",
    }.items()
}


IGNORED: Final = _IGNORED | {f"{section}.{key}" for section, keys in _BELOW.items() for key in keys}
"""Ignored sections and settings, in the form `section.setting`."""


def unknown_below(location: tuple[Step, ...], value: Any) -> Iterator[tuple[Step, ...]]:
    """The locations of keys in an ignored section that the real host does not know."""
    children = _BELOW.get(".".join(map(str, location)))
    if children is None or not isinstance(value, Mapping):
        return
    for key, below in cast("Mapping[str, Any]", value).items():
        if key not in children:
            yield (*location, key)
        yield from unknown_below((*location, key), below)
