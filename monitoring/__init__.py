"""Monitoring of Faultline: Prometheus rules, and Grafana dashboards as code."""
