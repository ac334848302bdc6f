# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Prepares a guest for the kernel's own tests and for stress-ng: busybox's commands, file systems, a user that is not root.
busybox=/bin/busybox
$busybox mkdir -p /sys /tmp /etc /dev/shm
$busybox --install -s /bin
mount -t sysfs sysfs /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
echo 'root:x:0:0::/:/bin/sh
nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
# ksm_tests counts scans of ksmd; a page that smart scan skips is not merged in the scan that the test waits for.
echo 0 >/sys/kernel/mm/ksm/smart_scan
