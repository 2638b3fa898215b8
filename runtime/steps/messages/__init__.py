"""Requests of model steps: their conversations, and what differs from the call before."""
