// A certified OpenID server for the tests: node provider.mjs MODULES PORT KEY_FILE...
// Signs with the first key and publishes all of them; a key file that is not there is made.
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [modules, port, ...files] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));

const key = (file) => {
  if (!existsSync(file)) {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const kid = file.split('/').at(-1);
    writeFileSync(file, JSON.stringify({ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid }));
  }
  return JSON.parse(readFileSync(file, 'utf8'));
};

const AUDIENCE = 'https://paddock.example';
const redirects = { redirect_uris: ['http://127.0.0.1:9/sign-in/callback'], response_types: ['code'] };
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: files.map(key) },
  clients: [
    { client_id: 'public', token_endpoint_auth_method: 'none', grant_types: ['authorization_code', 'refresh_token'], ...redirects },
    // A native client may come back to any port of the loopback address.
    { client_id: 'pages', token_endpoint_auth_method: 'none', application_type: 'native', grant_types: ['authorization_code'],
      redirect_uris: ['http://127.0.0.1/sign-in/callback', 'http://localhost/sign-in/callback'], response_types: ['code'] },
    { client_id: 'secret keeper', client_secret: 'a secret/with signs+', grant_types: ['authorization_code'], ...redirects },
    { client_id: 'machine', client_secret: 'machine', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] },
  ],
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access', 'api'],
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} Lovelace`, email: `${id}@example.com`, email_verified: true }),
  }),
  rotateRefreshToken: true,
  cookies: { keys: ['for tests only'] },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({
        scope: 'api', audience: AUDIENCE, accessTokenTTL: 600, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
      }),
      useGrantedResource: () => true,
    },
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('listening'));
