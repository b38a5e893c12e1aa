"""Faultline's methods on connections and in programs of other libraries."""
