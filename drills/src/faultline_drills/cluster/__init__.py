"""A primary and its standbys for a drill, which acts as the HA manager."""

from faultline_drills.cluster.cluster import Cluster, multi_host_url
from faultline_drills.cluster.epochs import expect_epochs
from faultline_drills.cluster.load import BackgroundLoad
from faultline_drills.cluster.member import ClusterMember
from faultline_drills.cluster.programs import missing_requirement
from faultline_drills.cluster.settings import MEMBER_SETTINGS

__all__ = [
    "MEMBER_SETTINGS",
    "BackgroundLoad",
    "Cluster",
    "ClusterMember",
    "expect_epochs",
    "missing_requirement",
    "multi_host_url",
]
