"""The commands of manage.py that run Faultline."""
