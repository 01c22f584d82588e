# Prints the commands of the plug-in of sos in the file named by the first argument, a line each. It has as much of sos as the plug-in uses.
import runpy
import sys
import types


class Plugin:
    def add_forbidden_path(self, forbidden):
        assert isinstance(forbidden, list), forbidden

    def get_cmd_output_path(self, name=None, make=True):
        return '/tmp/sos/sos_commands/' + self.plugin_name

    def add_cmd_output(self, cmds, timeout=300):
        for cmd in [cmds] if isinstance(cmds, str) else cmds:
            print(cmd)


for name in ('sos', 'sos.report', 'sos.report.plugins'):
    sys.modules[name] = types.ModuleType(name)
sys.modules['sos.report.plugins'].Plugin = Plugin
for tag in ('DebianPlugin', 'RedHatPlugin', 'UbuntuPlugin'):
    setattr(sys.modules['sos.report.plugins'], tag, type(tag, (), {}))
runpy.run_path(sys.argv[1])['Heddle']().setup()
