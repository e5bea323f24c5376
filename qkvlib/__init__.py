"""Attention, explained and tested."""
