// Drives a pool as Xen Orchestra would, with its own library: client.mjs TRANSPORT URL USER PASSWORD. It takes the first two
// hosts' PIFs with an address, makes a tunnel network over them, watches its events, and takes it away. Exits 0 when all was
// as it must be.
import assert from 'node:assert/strict'
import { createClient } from 'xen-api'

const [transport, url, user, password] = process.argv.slice(2)
const xapi = createClient({ url, transport, auth: { user, password }, allowUnauthorized: true })
const code = promise => promise.then(() => 'no error', error => error.code)

await xapi.connect()
await xapi.objectsFetched
const objects = type => Object.values(xapi.objects.all).filter(o => o.$type === type)

const pool = xapi.pool
assert.equal(objects('pool').length, 1)
const hosts = objects('host')
assert.ok(hosts.length >= 2, `${hosts.length} hosts`)
for (const host of hosts) assert.equal(host.software_version.network_backend, 'openvswitch')
const transports = hosts.map(h => h.$PIFs.find(p => p.IP !== ''))

// Writes are seen in events, in order.
await xapi.barrier(pool.$ref)
await pool.update_other_config('heddle-test', 'yes')
await xapi.barrier(pool.$ref)
assert.equal(xapi.getObjectByRef(pool.$ref).other_config['heddle-test'], 'yes')
await pool.update_other_config('heddle-test', null)

const network = await xapi.call('network.create', { name_label: 'private', name_description: '', MTU: 1450, other_config: { automatic: 'false' } })
const tunnels = []
for (const pif of transports.slice(0, 2)) {
  const result = await xapi.callAsync('tunnel.create', pif.$ref, network)
  tunnels.push(typeof result === 'string' ? result : result.result)
}
await xapi.barrier(network)
for (const ref of tunnels) {
  const tunnel = xapi.getObjectByRef(ref)
  assert.equal(tunnel.$type, 'tunnel')
  assert.equal(tunnel.$access_PIF.currently_attached, true)
  assert.equal(tunnel.$access_PIF.device, 'tunnel0')
  assert.ok(['true', 'false'].includes(tunnel.status.active))
  assert.deepEqual(tunnel.$transport_PIF.tunnel_transport_PIF_of.includes(ref), true)
}
assert.equal(xapi.getObjectByRef(network).PIFs.length, 2)

// Errors have the reference's codes, in calls and in tasks.
const access = xapi.getObjectByRef(tunnels[0]).access_PIF
const other = await xapi.call('network.create', { name_label: 'other', name_description: '', other_config: {} })
assert.equal(await code(xapi.call('tunnel.create', access, other)), 'IS_TUNNEL_ACCESS_PIF')
assert.equal(await code(xapi.callAsync('tunnel.create', access, other)), 'IS_TUNNEL_ACCESS_PIF')
assert.equal(await code(xapi.call('VLAN.create', access, 7, other)), 'IS_TUNNEL_ACCESS_PIF')
assert.equal(await code(xapi.call('PIF.forget', access)), 'PIF_TUNNEL_STILL_EXISTS')
assert.equal(await code(xapi.call('tunnel.create', transports[0].$ref, network)), 'NETWORK_ALREADY_CONNECTED')
assert.equal(await code(xapi.call('network.destroy', network)), 'NETWORK_CONTAINS_PIF')
assert.equal(await code(xapi.call('network.get_record', 'OpaqueRef:gone')), 'HANDLE_INVALID')
assert.equal(await code(xapi.call('tunnel.no_such_call')), 'MESSAGE_METHOD_UNKNOWN')

for (const ref of tunnels) await xapi.callAsync('tunnel.destroy', ref)
await xapi.call('network.destroy', network)
await xapi.call('network.destroy', other)
await xapi.barrier(pool.$ref)
assert.equal(xapi.getObjectByRef(tunnels[0], null), null)
assert.equal(objects('tunnel').length, 0)
await xapi.disconnect()
