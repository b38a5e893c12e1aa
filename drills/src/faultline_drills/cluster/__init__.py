"""Several PostgreSQL servers for a drill, and the part of whoever looks after them."""

from faultline_drills.cluster.cluster import Cluster, as_one
from faultline_drills.cluster.epochs import expect_epochs
from faultline_drills.cluster.load import Load
from faultline_drills.cluster.member import Member
from faultline_drills.cluster.programs import lacking
from faultline_drills.cluster.settings import MEMBER_SETTINGS

__all__ = ["MEMBER_SETTINGS", "Cluster", "Load", "Member", "as_one", "expect_epochs", "lacking"]
