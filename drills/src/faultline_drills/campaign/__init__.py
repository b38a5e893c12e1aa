"""A campaign: a share of many jobs is struck by real faults, and what became of them is counted."""

from faultline_drills.campaign.campaign import CampaignReport, CampaignSettings, run_campaign
from faultline_drills.campaign.fault_plan import FaultKind

__all__ = ["CampaignReport", "CampaignSettings", "FaultKind", "run_campaign"]
