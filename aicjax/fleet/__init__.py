# SPDX-License-Identifier: Apache-2.0
"""Fleets of replicas: queueing, event simulation, routing, sizing, cost and power. Times are seconds in this room."""
