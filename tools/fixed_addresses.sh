#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command without address randomization where the machine allows that, and plainly where it does not.
if setarch -R true 2>/dev/null; then
  exec setarch -R "$@"
fi
exec "$@"
