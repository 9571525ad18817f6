"""Segment-native training of any supported checkpoint: ``python -m training.native``, see docs/native_training.md."""
