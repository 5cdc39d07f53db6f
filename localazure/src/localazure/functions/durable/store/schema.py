"""The store's tables. Times are microseconds since the Unix epoch, UTC; `*_json` is JSON text."""

MIGRATIONS = (
    """
    CREATE TABLE instances (
        instance_id TEXT PRIMARY KEY,
        execution_id TEXT NOT NULL,
        name TEXT NOT NULL,
        version TEXT,
        input_json TEXT,
        parent_instance_id TEXT,
        parent_execution_id TEXT,
        parent_event_id INTEGER,
        status TEXT NOT NULL,
        started INTEGER NOT NULL DEFAULT 0,      -- 0: no episode of this execution is recorded
        custom_status TEXT,
        output TEXT,
        created_at_us INTEGER NOT NULL,
        updated_at_us INTEGER NOT NULL
    );
    CREATE INDEX instances_by_creation ON instances (created_at_us, instance_id);
    CREATE INDEX instances_to_start ON instances (instance_id) WHERE started = 0;
    CREATE INDEX instances_by_parent ON instances (parent_execution_id)
        WHERE parent_execution_id IS NOT NULL;

    CREATE TABLE history (                       -- one row an episode
        execution_id TEXT NOT NULL,
        episode INTEGER NOT NULL,
        recorded_at_us INTEGER NOT NULL,
        events TEXT NOT NULL,                    -- JSON objects joined by commas
        PRIMARY KEY (execution_id, episode)
    );

    CREATE TABLE inbox (                         -- messages not consumed by an episode yet
        sequence INTEGER PRIMARY KEY,
        target TEXT NOT NULL,                    -- instance id, or "@name@key" of an entity
        execution_id TEXT,                       -- NULL: for the current execution
        event_json TEXT NOT NULL
    );
    CREATE INDEX inbox_by_target ON inbox (target);

    CREATE TABLE activities (                    -- scheduled, not completed
        execution_id TEXT NOT NULL,
        event_id INTEGER NOT NULL,
        instance_id TEXT NOT NULL,
        name TEXT NOT NULL,
        input_json TEXT,
        not_before_us INTEGER NOT NULL,
        PRIMARY KEY (execution_id, event_id)
    );

    CREATE TABLE timers (                        -- created, its firing not consumed by an episode
        execution_id TEXT NOT NULL,
        event_id INTEGER NOT NULL,
        instance_id TEXT NOT NULL,
        fire_at TEXT NOT NULL,                   -- ISO 8601, as the orchestrator gave it
        PRIMARY KEY (execution_id, event_id)
    );

    CREATE TABLE entities (
        entity_id TEXT PRIMARY KEY,              -- "@name@key"
        state_json TEXT,
        updated_at_us INTEGER NOT NULL
    );
    """,
    """
    CREATE INDEX instances_unfinished ON instances (created_at_us, instance_id)
        WHERE status IN ('Pending', 'Running', 'Suspended');
    """,
    """
    -- Of several hosts that wrote one file; dropped below.
    CREATE TABLE leases (partition INTEGER PRIMARY KEY, owner TEXT, epoch INTEGER,
        expires_at_us INTEGER);
    CREATE TABLE arrivals (last INTEGER);
    ALTER TABLE instances ADD COLUMN arrival INTEGER;
    CREATE INDEX instances_arrived ON instances (arrival)
        WHERE started = 0 AND arrival IS NOT NULL;
    """,
    """
    -- Used by the Durable Task Scheduler's protocol only.
    ALTER TABLE instances ADD COLUMN opening_json TEXT;    -- more fields of ExecutionStarted
    ALTER TABLE activities ADD COLUMN context_json TEXT;   -- more fields of TaskScheduled
    ALTER TABLE entities ADD COLUMN locked_by TEXT;        -- id of an orchestration
    """,
    """
    DROP TABLE leases;
    DROP TABLE arrivals;
    DROP INDEX instances_arrived;
    ALTER TABLE instances DROP COLUMN arrival;
    """,
)
