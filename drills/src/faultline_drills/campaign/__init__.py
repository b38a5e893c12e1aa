"""A campaign: injects faults into a share of many jobs and counts the duplicates."""

from faultline_drills.campaign.campaign import CampaignReport, CampaignSettings, run_campaign
from faultline_drills.campaign.fault_plan import FaultKind

__all__ = ["CampaignReport", "CampaignSettings", "FaultKind", "run_campaign"]
