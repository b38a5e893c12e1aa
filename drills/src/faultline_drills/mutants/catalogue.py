"""All mutants: possible bugs, each as an edit of Faultline's source.

Every mutant names the layer that must find it. If no layer found one, a line of the protocol could be
lost without any drill failing.
"""

from __future__ import annotations

from faultline_drills.mutants.batches import BATCH_MUTANTS
from faultline_drills.mutants.epochs import EPOCH_MUTANTS
from faultline_drills.mutants.fence import FENCE_MUTANTS
from faultline_drills.mutants.limits import LIMIT_MUTANTS
from faultline_drills.mutants.locks import LOCK_MUTANTS
from faultline_drills.mutants.mutant import Mutant
from faultline_drills.mutants.places import PLACE_MUTANTS
from faultline_drills.mutants.schedules import SCHEDULE_MUTANTS
from faultline_drills.mutants.starts import START_MUTANTS
from faultline_drills.mutants.transactions import TRANSACTION_MUTANTS
from faultline_drills.mutants.unique_keys import UNIQUE_MUTANTS
from faultline_drills.mutants.verbs import CLAIM_MUTANTS, VERB_MUTANTS
from faultline_drills.mutants.workers import WORKER_MUTANTS

MUTANTS: tuple[Mutant, ...] = (
    *FENCE_MUTANTS,
    *TRANSACTION_MUTANTS,
    *BATCH_MUTANTS,
    *CLAIM_MUTANTS,
    *LOCK_MUTANTS,
    *LIMIT_MUTANTS,
    *VERB_MUTANTS,
    *WORKER_MUTANTS,
    *EPOCH_MUTANTS,
    *PLACE_MUTANTS,
    *UNIQUE_MUTANTS,
    *SCHEDULE_MUTANTS,
    *START_MUTANTS,
)
