'use strict';
// The page shows what happened in the simulator and lets a person act as the user. All foreign text is set by
// textContent; nothing is ever parsed as markup.

const api = '/_sim/telegram';
const $ = (id) => document.getElementById(id);
const starters = [
  { id: 1001, name: 'Ada', type: 'private' },
  { id: 1002, name: 'Linus', type: 'private' },
  { id: -1001000000001, name: 'Team room', type: 'supergroup' },
];
const members = [{ id: 1001, name: 'Ada' }, { id: 1002, name: 'Linus' }];
const state = { bot: '', bots: [], chats: new Map(), current: 0, messages: new Map(), unread: new Map(), last: new Map(), reply: 0, follow: true };
let typingTimer = 0;
let toastTimer = 0;
let chatsTimer = 0;
let statsTimer = 0;
let loads = 0;

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

async function ask(method, path, body) {
  const init = { method, headers: {} };
  if (method === 'POST') {
    init.headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body ?? {});
  }
  const response = await fetch(api + path, init);
  const data = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(data.error || `HTTP ${response.status}`);
  return data;
}

function attempt(work) {
  Promise.resolve().then(work).catch((error) => toast(error.message));
}

function toast(text) {
  $('toast').textContent = text;
  $('toast').hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $('toast').hidden = true; }, 4000);
}

// --- bots and chats

async function loadBots() {
  state.bots = await ask('GET', '/bots');
  const pick = $('bot');
  pick.replaceChildren(...state.bots.map((bot) => {
    const option = el('option', '', '@' + bot.username);
    option.value = String(bot.id);
    return option;
  }));
  if (state.bots.length === 0) pick.append(el('option', '', 'none has called yet'));
  if (!state.bots.some((bot) => String(bot.id) === state.bot)) state.bot = state.bots.length ? String(state.bots[0].id) : '';
  pick.value = state.bot;
  pick.disabled = state.bots.length < 2;
}

async function loadChats() {
  const known = state.bot ? await ask('GET', '/chats?bot=' + encodeURIComponent(state.bot)) : [];
  const list = new Map(starters.map((chat) => [chat.id, { ...chat }]));
  for (const chat of state.chats.values()) if (chat.local) list.set(chat.id, chat);
  for (const chat of known) list.set(chat.id, { ...chat, name: starters.find((s) => s.id === chat.id)?.name ?? chat.name });
  state.chats = list;
  if (!list.has(state.current)) state.current = starters[0].id;
  showChats();
}

function initials(name) {
  return name.split(/\s+/).filter(Boolean).slice(0, 2).map((word) => Array.from(word)[0].toUpperCase()).join('');
}

function avatar(node, chat) {
  node.textContent = initials(chat.name);
  node.dataset.tone = String(Math.abs(chat.id) % 6);
}

function showChats() {
  const rows = [];
  for (const chat of state.chats.values()) {
    const row = el('button', 'chat');
    row.type = 'button';
    row.dataset.chat = String(chat.id);
    row.setAttribute('aria-current', String(chat.id === state.current));
    const face = el('span', 'avatar');
    face.setAttribute('aria-hidden', 'true');
    avatar(face, chat);
    const words = el('div');
    words.append(el('b', '', chat.name), el('small', '', state.last.get(chat.id) ?? (chat.type === 'private' ? 'private chat' : chat.type)));
    row.append(face, words);
    if (chat.state) row.append(el('span', 'state', chat.state));
    const unread = state.unread.get(chat.id);
    if (unread) row.append(el('span', 'badge', String(unread)));
    row.addEventListener('click', () => openChat(chat.id));
    rows.push(row);
  }
  $('chats').replaceChildren(...rows);
  const chat = state.chats.get(state.current);
  if (!chat) return;
  $('title').textContent = chat.name;
  $('subtitle').textContent = `${chat.type} · ${chat.id}` + (chat.state ? ` · ${chat.state}` : '');
  avatar($('avatar'), chat);
}

function openChat(id) {
  state.current = id;
  state.unread.delete(id);
  state.follow = true;
  setReply(0);
  stopTyping();
  document.body.classList.remove('listing');
  showChats();
  attempt(loadHistory);
}

async function loadHistory() {
  const load = ++loads;
  const list = state.bot ? await ask('GET', `/history?last=300&bot=${state.bot}&chat_id=${state.current}`) : [];
  if (load !== loads) return;
  state.messages = new Map(list.map((message) => [message.message_id, message]));
  $('messages').replaceChildren(...list.map(drawMessage));
  scrollDown();
}

// --- messages

const marks = { bold: 'strong', italic: 'em', underline: 'u', strikethrough: 's', code: 'code', pre: 'pre', blockquote: 'blockquote', expandable_blockquote: 'blockquote' };

// drawText nests the entities; offsets count UTF-16 units, as JavaScript's strings do.
function drawText(parent, text, entities, from, to) {
  let at = from;
  while (entities.length > 0) {
    const entity = entities.shift();
    const start = Math.max(entity.offset, at);
    const end = Math.min(entity.offset + entity.length, to);
    if (end <= start) continue;
    const block = ['pre', 'blockquote', 'expandable_blockquote'].includes(entity.type);
    // A block starts and ends its line by itself.
    if (start > at) parent.append(text.slice(at, block && text[start - 1] === '\n' ? start - 1 : start));
    const inner = [];
    while (entities.length > 0 && entities[0].offset < end) inner.push(entities.shift());
    const node = el(marks[entity.type] ?? 'span');
    if (entity.type === 'spoiler') node.className = 'spoiler';
    if (['text_link', 'url', 'mention', 'bot_command', 'hashtag'].includes(entity.type)) node.className = 'link';
    if (entity.url) node.title = entity.url;
    drawText(node, text, inner, start, end);
    parent.append(node);
    at = block && end < to && text[end] === '\n' ? end + 1 : end;
  }
  if (at < to) parent.append(text.slice(at, to));
}

function short(message) {
  if (!message) return 'a message that is gone';
  return message.text || (message.file ? message.file.name || message.file.kind : 'service message');
}

function drawMessage(message) {
  const item = el('li', 'message' + (message.from_bot ? ' bot' : ' user') + (message.deleted ? ' deleted' : ''));
  item.dataset.id = String(message.message_id);
  if (message.service) {
    item.className = 'message service';
    item.textContent = Object.entries(message.service).map(([key, value]) => `${key.replaceAll('_', ' ')}: ${value}`).join(', ');
    return item;
  }
  const bubble = el('div', 'bubble');
  if (state.current < 0 || message.thread_id) {
    bubble.append(el('div', 'name', (message.from_bot ? 'bot' : message.sender) + (message.thread_id ? ` · topic ${message.thread_id}` : '')));
  }
  if (message.reply_to) bubble.append(el('div', 'reply', short(state.messages.get(message.reply_to))));
  if (message.file) bubble.append(drawFile(message.file));
  if (message.text) {
    const text = el('div', 'text');
    drawText(text, message.text, [...(message.entities ?? [])], 0, message.text.length);
    bubble.append(text);
  }
  bubble.append(drawMeta(message));
  item.append(bubble);
  const keyboard = message.deleted ? null : message.reply_markup?.inline_keyboard;
  if (keyboard) item.append(drawButtons(message, keyboard));
  if (message.bot_reaction || message.reaction) {
    const row = el('div', 'reactions');
    for (const emoji of [message.bot_reaction, message.reaction]) if (emoji) row.append(el('span', '', emoji));
    item.append(row);
  }
  return item;
}

function drawFile(file) {
  if (file.kind === 'photo' && file.size > 0) {
    const image = el('img');
    image.alt = file.name || 'photo';
    image.src = `${api}/files/${encodeURIComponent(file.file_id)}`;
    return image;
  }
  return el('div', 'file', `${file.kind} · ${file.name || file.url || file.file_id}` + (file.size ? ` · ${file.size.toLocaleString('en')} bytes` : ''));
}

function drawMeta(message) {
  const meta = el('div', 'meta');
  const left = el('span', 'left');
  if (!message.deleted) {
    const reply = el('button', 'act', 'reply');
    reply.type = 'button';
    reply.addEventListener('click', () => { setReply(message.message_id); $('text').focus(); });
    left.append(reply);
    if (message.from_bot) {
      const like = el('button', 'act', message.reaction ? 'unlike' : 'like');
      like.type = 'button';
      like.addEventListener('click', () => attempt(() => ask('POST', '/updates', { ...actor(), react: message.message_id, reaction: message.reaction ? '' : '👍' })));
      left.append(like);
    }
  }
  meta.append(left);
  if (message.lost) {
    const lost = el('span', 'lost', 'answer lost');
    lost.title = 'The platform accepted the message, but the bot got no answer';
    meta.append(lost);
  }
  if (message.deleted) meta.append(el('span', '', 'deleted'));
  if (message.edits) {
    const edited = el('span', '', message.edits.length > 1 ? `edited ×${message.edits.length}` : 'edited');
    edited.title = message.edits.slice(-10).map((edit) => edit.text).join('\n→ ');
    meta.append(edited);
  }
  const time = el('time', '', new Date(message.at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' }));
  time.dateTime = message.at;
  meta.append(time);
  return meta;
}

function drawButtons(message, keyboard) {
  const box = el('div', 'buttons');
  keyboard.forEach((row, rowIndex) => {
    const line = el('div');
    row.forEach((button, column) => {
      const node = el('button', '', button.text);
      node.type = 'button';
      node.disabled = !button.callback_data;
      node.addEventListener('click', () => attempt(() => ask('POST', '/press', {
        bot: state.bot, chat_id: state.current, message_id: message.message_id, data: button.callback_data, row: rowIndex, column,
        user_id: actor().user_id, name: actor().name,
      })));
      line.append(node);
    });
    box.append(line);
  });
  return box;
}

function scrollDown() {
  const list = $('messages');
  if (state.follow) list.scrollTop = list.scrollHeight;
}

function put(message) {
  state.messages.set(message.message_id, message);
  const old = $('messages').querySelector(`[data-id="${Number(message.message_id)}"]`);
  const fresh = drawMessage(message);
  if (old) old.replaceWith(fresh);
  else $('messages').append(fresh);
  while ($('messages').children.length > 500) $('messages').firstElementChild.remove();
  scrollDown();
}

function stopTyping() {
  clearTimeout(typingTimer);
  $('typing').hidden = true;
}

// --- acting as the user

function actor() {
  const chat = state.chats.get(state.current);
  const user = state.current > 0 ? { id: state.current, name: chat?.name } : members[0];
  const who = { bot: state.bot, chat_id: state.current, chat_type: chat?.type, user_id: user.id, name: user.name };
  if (state.current < 0) who.title = chat?.name;
  return who;
}

function setReply(id) {
  state.reply = id;
  $('replybar').hidden = !id;
  $('replytext').textContent = id ? 'Reply to: ' + short(state.messages.get(id)) : '';
}

function fitText() {
  const box = $('text');
  box.style.height = 'auto';
  box.style.height = Math.min(box.scrollHeight + 2, 160) + 'px';
}

async function send() {
  const text = $('text').value;
  if (!text.trim()) return;
  $('text').value = '';
  fitText();
  state.follow = true;
  const input = { ...actor(), text };
  if (state.reply) input.reply_to = state.reply;
  setReply(0);
  try {
    await ask('POST', '/updates', input);
  } catch (error) {
    $('text').value = text;
    throw error;
  }
}

// --- faults

function faultFor(name) {
  const chat = state.current;
  switch (name) {
    case '429': return { kind: 'status', status: 429, retry_after: 3, cooldown: 'chat', chat_id: chat };
    case '502': return { kind: 'status', status: 502, html: true, chat_id: chat };
    case 'lost': return { kind: 'lost', chat_id: chat };
    case 'blocked': return { kind: 'blocked', chat_id: chat };
    default: return { kind: 'down' };
  }
}

async function loadFaults() {
  const list = await ask('GET', '/faults');
  $('armed').replaceChildren(...list.map((fault) => {
    const words = [fault.kind === 'status' ? String(fault.status) : fault.kind.replaceAll('_', ' ')];
    if (fault.chat_id) words.push('in ' + (state.chats.get(fault.chat_id)?.name ?? fault.chat_id));
    if (fault.count > 0) words.push(`×${fault.count}`);
    const item = el('li', '', words.join(' '));
    const off = el('button', '', '×');
    off.type = 'button';
    off.setAttribute('aria-label', 'Remove this fault');
    off.addEventListener('click', () => attempt(() => ask('DELETE', '/faults/' + fault.id)));
    item.append(off);
    return item;
  }));
  const armed = list.length;
  $('toggle').textContent = armed ? `Faults (${armed})` : 'Faults';
}

async function loadStats() {
  const stats = await ask('GET', '/stats');
  const calls = Object.values(stats.calls).reduce((sum, n) => sum + n, 0);
  $('stats').textContent = `${calls} calls · ${stats.messages} messages · ${stats.too_many} × 429 · ${stats.early_calls} too early · ${stats.pending_updates} updates pending`;
}

// --- live

function later(timer, work) {
  clearTimeout(timer);
  return setTimeout(() => attempt(work), 150);
}

function onEvent({ event }) {
  const mine = String(event.bot ?? '') === state.bot;
  switch (event.kind) {
    case 'reset':
    case 'reload':
      state.last.clear();
      state.unread.clear();
      attempt(loadAll);
      return;
    case 'bot':
      attempt(async () => {
        const before = state.bot;
        await loadBots();
        if (state.bot !== before) await loadAll();
      });
      return;
    case 'fault':
      attempt(loadFaults);
      return;
    case 'chat':
      chatsTimer = later(chatsTimer, loadChats);
      return;
    case 'typing':
      if (mine && event.chat_id === state.current) {
        clearTimeout(typingTimer);
        $('typing').hidden = false;
        typingTimer = setTimeout(stopTyping, 5000);
      }
      return;
    case 'callback_answer':
      if (mine && event.text) toast(event.text);
      return;
    default:
      if (mine && event.message) onMessage(event);
  }
}

function onMessage(event) {
  const message = event.message;
  if (event.kind === 'message') {
    state.last.set(event.chat_id, (message.from_bot ? 'bot: ' : '') + short(message).slice(0, 80));
    if (event.chat_id !== state.current) state.unread.set(event.chat_id, (state.unread.get(event.chat_id) ?? 0) + 1);
    showChats();
  }
  if (event.chat_id === state.current) {
    if (message.from_bot && event.kind === 'message') stopTyping();
    put(message);
  }
  if (!$('faults').hidden) statsTimer = later(statsTimer, loadStats);
}

async function loadAll() {
  await loadBots();
  await loadChats();
  await Promise.all([loadHistory(), loadFaults(), loadStats()]);
}

function connect() {
  const live = new EventSource('/_sim/events');
  live.onopen = () => {
    $('live').textContent = 'live';
    $('live').className = 'live on';
    attempt(loadAll);
  };
  live.onerror = () => {
    $('live').textContent = 'reconnecting';
    $('live').className = 'live off';
    if (live.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
  live.onmessage = (event) => onEvent(JSON.parse(event.data));
}

$('composer').addEventListener('submit', (event) => { event.preventDefault(); attempt(send); });
$('text').addEventListener('input', fitText);
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); attempt(send); }
});
$('noreply').addEventListener('click', () => setReply(0));
$('back').addEventListener('click', () => document.body.classList.add('listing'));
$('bot').addEventListener('change', () => { state.bot = $('bot').value; state.last.clear(); state.unread.clear(); attempt(loadAll); });
$('toggle').addEventListener('click', () => {
  $('faults').hidden = !$('faults').hidden;
  $('toggle').setAttribute('aria-expanded', String(!$('faults').hidden));
  attempt(loadStats);
});
$('clear').addEventListener('click', () => attempt(() => ask('DELETE', '/faults')));
for (const button of document.querySelectorAll('[data-fault]')) {
  button.addEventListener('click', () => attempt(() => ask('POST', '/faults', faultFor(button.dataset.fault))));
}
$('newchat').addEventListener('submit', (event) => {
  event.preventDefault();
  const name = $('newname').value.trim() || 'Someone';
  const group = $('newkind').value === 'supergroup';
  const number = 2000 + Math.floor(Math.random() * 1e8);
  const chat = { id: group ? -1002000000000 - number : number, name, type: group ? 'supergroup' : 'private', local: true };
  state.chats.set(chat.id, chat);
  $('newname').value = '';
  openChat(chat.id);
});
new ResizeObserver(scrollDown).observe($('messages'));
$('messages').addEventListener('scroll', () => {
  const list = $('messages');
  state.follow = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
});
connect();
