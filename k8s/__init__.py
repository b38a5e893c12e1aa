"""Faultline on Kubernetes: kustomize, a Helm chart, and generators of copied parts."""
