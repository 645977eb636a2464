"""Shipped SimGrid platforms, package data of `perfmodel.platforms`: see README.md here."""
