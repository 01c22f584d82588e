# Boots cloud-init with the data source $1 as in a new machine, and prints what it has made of it. All that it
# writes is in memory and goes with this mount namespace.
mount -t sysfs none /sys # that of this network namespace
mount -t tmpfs none /mnt
cp -a /etc /mnt/etc
mount --bind /mnt/etc /etc
for dir in /var/lib/cloud /run /home /root /var/log /var/tmp; do
  mkdir -p "$dir"
  mount -t tmpfs none "$dir"
done
: >/etc/resolv.conf # names of servers that cannot be reached would cost half a minute
rm -rf /etc/cloud/cloud-init.disabled /etc/cloud/cloud.cfg.d /etc/systemd/network
mkdir -p /etc/systemd/network
cat >/etc/cloud/cloud.cfg <<END
datasource_list: [ $1 ]
datasource: { Ec2: { strict_id: false, metadata_urls: [ "http://169.254.169.254" ] } }
disable_network_activation: true
ssh_deletekeys: false
ssh_genkeytypes: []
users: [ default ]
cloud_init_modules: [ write-files, set_hostname, users-groups, ssh ]
cloud_config_modules: [ set-passwords ]
system_info:
  distro: debian
  default_user: { name: heddle-test, lock_passwd: true, shell: /bin/sh }
  network: { renderers: [ networkd ] }
END
cloud-init init
cloud-init modules --mode=config
echo "source: $(cloud-init query platform)"
echo "instance: $(cloud-init query instance_id)"
echo "hostname: $(hostname)"
sed "s/^/key: /" /home/heddle-test/.ssh/authorized_keys
echo "file: $(cat /etc/heddle-test)"
echo "password: $(sed -n 's/^heddle-test:\([^:]*\):.*/\1/p' /etc/shadow)"
cat /etc/systemd/network/*
