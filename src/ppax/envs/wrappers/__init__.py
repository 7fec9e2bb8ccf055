"""Wrappers of compiled environments: time limit, action repeat, partial and team views, parameters, resets."""
