"""What watches a running Faultline: Prometheus rules, and Grafana dashboards as code."""
