"""HTTP, event, message and timer triggers: what starts work."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.triggers import blob_created as blob_created
    from handlers.triggers import explain as explain
    from handlers.triggers import http_api as http_api
    from handlers.triggers import job_state_changed as job_state_changed
    from handlers.triggers import reconciliation as reconciliation
    from handlers.triggers import release as release
    from handlers.triggers import rollout_api as rollout_api
    from handlers.triggers import sign_in as sign_in

__getattr__ = loaded_on_demand(__name__)
