"""Example of a plug-in for sos (Debian: sosreport) that adds a machine's Heddle to its reports.

Copy it to sos/report/plugins/heddle.py among the system's Python packages.
"""
import os

from sos.report.plugins import DebianPlugin, Plugin, RedHatPlugin, UbuntuPlugin


class Heddle(Plugin, DebianPlugin, RedHatPlugin, UbuntuPlugin):

    short_desc = 'Heddle virtual networks'
    plugin_name = 'heddle'
    profiles = ('network', 'virt', 'openstack')
    packages = ('heddle',)
    commands = ('heddle',)

    def setup(self):
        # Settings, keys and passwords: the bundle has the settings, without secrets.
        self.add_forbidden_path(['/etc/heddle', '/var/lib/heddle', '/var/lib/heddle-agent'])
        self.add_cmd_output(['heddle version', 'heddle status', 'heddle doctor'])
        bundle = os.path.join(self.get_cmd_output_path(), 'heddle-support.tar.gz')
        self.add_cmd_output('heddle support --timeout 60s --output-file %s' % bundle, timeout=120)
