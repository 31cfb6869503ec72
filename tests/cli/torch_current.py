# SPDX-License-Identifier: BSD-3-Clause
"""In place of torch.cuda.stream in a test without a GPU: which streams are current."""


class Current:
    streams = []  # the first one is the caller's

    def __init__(self, stream):
        self._stream = stream

    def __enter__(self):
        self.streams.append(self._stream)

    def __exit__(self, *_):
        self.streams.pop()
