// SPDX-License-Identifier: Apache-2.0
//
// Counters of the prefill kernel, in the order of the result block (docs/prefill_engine.md).
//
// Protocol:   taken clears all but runs. Values of a unit (unit_*) count from the start of a phase;
//             they are shown while the phase goes on and added up at its end.
// Latency:    1 cycle; the units' values and the checksums none.
// Throughput: one event of each kind a cycle.
// Limits:     32 bits where the list says so, else 64; they wrap.

`default_nettype none

module prefill_counters #(
    parameter WORDS = 42  // as many as there are
) (
    input wire clk,
    input wire rst_n,

    input wire taken,
    input wire working,
    input wire indexing,
    input wire attending,
    input wire phase_ends,
    input wire kv_head_done,

    input wire [31:0] unit_jobs,
    input wire [31:0] unit_tiles,
    input wire [63:0] unit_steps,
    input wire [31:0] unit_empty_rows,
    input wire [31:0] unit_visits,
    input wire [31:0] unit_hits,
    input wire [31:0] unit_misses,
    input wire [31:0] unit_hot,
    input wire [31:0] unit_cold,
    input wire [31:0] unit_bypasses,
    input wire [31:0] unit_evictions,
    input wire [31:0] unit_prefetches,

    input wire       starves,
    input wire       q_beat,
    input wire       k_beat,
    input wire       v_beat,
    input wire       o_beat,
    input wire       jobs_beat_read,
    input wire       jobs_beat_written,
    input wire [5:0] burst,             // one bit for each address channel

    // Sums of the words that went over the ports since taken, without the result block.
    input wire [31:0] q_checksum,
    input wire [31:0] k_checksum,
    input wire [31:0] v_checksum,
    input wire [31:0] o_checksum,
    input wire [31:0] jobs_read_checksum,
    input wire [31:0] jobs_written_checksum,

    output wire [WORDS*32-1:0] counters  // words 3 and on of the result block, word 3 lowest
);

  reg [63:0] cycles;
  reg [63:0] index_cycles;
  reg [63:0] attention_cycles;
  reg [31:0] jobs_done;
  reg [31:0] index_tiles;
  reg [63:0] attention_steps;
  reg [63:0] index_steps;
  reg [31:0] visits;
  reg [31:0] hits;
  reg [31:0] misses;
  reg [31:0] hot;
  reg [31:0] cold;
  reg [31:0] bypasses;
  reg [31:0] evictions;
  reg [31:0] prefetches;
  reg [63:0] q_beats;
  reg [63:0] k_beats;
  reg [63:0] v_beats;
  reg [63:0] o_beats;
  reg [31:0] jobs_beats_read;
  reg [31:0] jobs_beats_written;
  reg [31:0] bursts;
  reg [63:0] starved_cycles;
  reg [31:0] empty_rows;
  reg [31:0] kv_heads_done;
  reg [31:0] runs;

  // Totals with the phase that goes on.
  wire [31:0] attended = attending ? 32'hFFFF_FFFF : 32'd0;
  wire [31:0] indexed = indexing ? 32'hFFFF_FFFF : 32'd0;
  wire [63:0] attended_steps = attending ? unit_steps : 64'd0;
  wire [63:0] indexed_steps = indexing ? unit_steps : 64'd0;
  wire [31:0] all_jobs = jobs_done + (unit_jobs & attended);
  wire [31:0] all_tiles = index_tiles + (unit_tiles & indexed);
  wire [63:0] all_attention_steps = attention_steps + attended_steps;
  wire [63:0] all_index_steps = index_steps + indexed_steps;
  wire [31:0] all_visits = visits + (unit_visits & attended);
  wire [31:0] all_hits = hits + (unit_hits & attended);
  wire [31:0] all_misses = misses + (unit_misses & attended);
  wire [31:0] all_hot = hot + (unit_hot & attended);
  wire [31:0] all_cold = cold + (unit_cold & attended);
  wire [31:0] all_bypasses = bypasses + (unit_bypasses & attended);
  wire [31:0] all_evictions = evictions + (unit_evictions & attended);
  wire [31:0] all_prefetches = prefetches + (unit_prefetches & attended);
  wire [31:0] all_empty_rows = empty_rows + (unit_empty_rows & attended);

  wire [ 2:0] new_bursts = {2'd0, burst[0]} + {2'd0, burst[1]} + {2'd0, burst[2]}
                           + {2'd0, burst[3]} + {2'd0, burst[4]} + {2'd0, burst[5]};

  assign counters = {
    jobs_written_checksum,
    jobs_read_checksum,
    o_checksum,
    v_checksum,
    k_checksum,
    q_checksum,
    runs,
    kv_heads_done,
    all_empty_rows,
    starved_cycles,
    bursts,
    jobs_beats_written,
    jobs_beats_read,
    o_beats,
    v_beats,
    k_beats,
    q_beats,
    all_prefetches,
    all_evictions,
    all_bypasses,
    all_cold,
    all_hot,
    all_misses,
    all_hits,
    all_visits,
    all_index_steps,
    all_attention_steps,
    all_tiles,
    all_jobs,
    attention_cycles,
    index_cycles,
    cycles
  };

  always @(posedge clk) begin
    if (!rst_n || taken) begin
      cycles             <= {63'd0, rst_n};  // the cycle of start counts
      index_cycles       <= 64'd0;
      attention_cycles   <= 64'd0;
      q_beats            <= 64'd0;
      k_beats            <= 64'd0;
      v_beats            <= 64'd0;
      o_beats            <= 64'd0;
      jobs_beats_read    <= 32'd0;
      jobs_beats_written <= 32'd0;
      bursts             <= 32'd0;
      starved_cycles     <= 64'd0;
      kv_heads_done      <= 32'd0;
    end else begin
      if (working) cycles <= cycles + 64'd1;
      if (indexing) index_cycles <= index_cycles + 64'd1;
      if (attending) attention_cycles <= attention_cycles + 64'd1;
      if (attending && starves) starved_cycles <= starved_cycles + 64'd1;
      if (working) begin
        q_beats            <= q_beats + {63'd0, q_beat};
        k_beats            <= k_beats + {63'd0, k_beat};
        v_beats            <= v_beats + {63'd0, v_beat};
        o_beats            <= o_beats + {63'd0, o_beat};
        jobs_beats_read    <= jobs_beats_read + {31'd0, jobs_beat_read};
        jobs_beats_written <= jobs_beats_written + {31'd0, jobs_beat_written};
        bursts             <= bursts + {29'd0, new_bursts};
      end
      if (kv_head_done) kv_heads_done <= kv_heads_done + 32'd1;
    end
  end

  always @(posedge clk) begin
    if (!rst_n || taken) begin
      jobs_done       <= 32'd0;
      index_tiles     <= 32'd0;
      attention_steps <= 64'd0;
      index_steps     <= 64'd0;
      visits          <= 32'd0;
      hits            <= 32'd0;
      misses          <= 32'd0;
      hot             <= 32'd0;
      cold            <= 32'd0;
      bypasses        <= 32'd0;
      evictions       <= 32'd0;
      prefetches      <= 32'd0;
      empty_rows      <= 32'd0;
    end else if (phase_ends) begin
      jobs_done       <= all_jobs;
      index_tiles     <= all_tiles;
      attention_steps <= all_attention_steps;
      index_steps     <= all_index_steps;
      visits          <= all_visits;
      hits            <= all_hits;
      misses          <= all_misses;
      hot             <= all_hot;
      cold            <= all_cold;
      bypasses        <= all_bypasses;
      evictions       <= all_evictions;
      prefetches      <= all_prefetches;
      empty_rows      <= all_empty_rows;
    end
  end

  always @(posedge clk) begin
    if (!rst_n) runs <= 32'd0;
    else if (taken) runs <= runs + 32'd1;
  end

endmodule

`default_nettype wire
