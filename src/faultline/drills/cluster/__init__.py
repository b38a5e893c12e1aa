"""Several PostgreSQL servers for a drill, and the part of whoever looks after them."""

from faultline.drills.cluster.cluster import Cluster, as_one
from faultline.drills.cluster.epochs import expect_epochs
from faultline.drills.cluster.load import Load
from faultline.drills.cluster.member import Member
from faultline.drills.cluster.programs import lacking
from faultline.drills.cluster.settings import MEMBER_SETTINGS

__all__ = ["MEMBER_SETTINGS", "Cluster", "Load", "Member", "as_one", "expect_epochs", "lacking"]
