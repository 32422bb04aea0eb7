"""Sides of a pair's file: ways to run one model that must be the same computation, each judged against the first."""
