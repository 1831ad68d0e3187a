// SPDX-License-Identifier: Apache-2.0
// stencil(in, out, width, height): a five-point stencil of 32-bit numbers, out = 4 in - left - right - up - down; past the edge all is 0.
// Rows are a multiple of sixteen numbers long. Registers: in, bytes of in, out, bytes of out, width, height.
module stencil (
	input clk, input rst,
	input wr_valid, input [4:0] wr_reg, input [63:0] wr_data,
	input [4:0] rd_reg, output [63:0] rd_data,
	output req, output we, output [63:0] addr, output [511:0] data, output [15:0] lanes,
	input taken, input answer, input [511:0] answer_data
);
	// For each beat: the one above, the one below, the next of the row; then it is written. A row's first beat is read before.
	localparam IDLE = 0, FIRST = 1, UP = 2, DOWN = 3, NEXT = 4, WRITE = 5, END = 6;

	wire [64*6-1:0] args;
	wire start;
	wire [63:0] in = args[0 +: 64], out = args[128 +: 64];
	wire [31:0] width = args[256 +: 32], height = args[320 +: 32];
	wire [63:0] bytes = {32'd0, width} * {32'd0, height} * 4;
	wire fits = width[3:0] == 0 && width < 32'h10000 && height < 32'h10000 && bytes <= args[64 +: 64] && bytes <= args[192 +: 64];
	wire [63:0] row_bytes = {30'd0, width, 2'd0};
	reg [2:0] state;
	reg waiting, bad;
	reg [63:0] at;           // of the beat
	reg [31:0] column, row;  // column in beats
	reg [511:0] up, down, centre, next;
	reg [31:0] prior;       // the number left of the beat
	wire last_column = column + 1 == {4'd0, width[31:4]};
	wire last_row = row + 1 == height;
	// What lies past the edge is not read.
	wire skip = (state == UP && row == 0) || (state == DOWN && last_row) || (state == NEXT && last_column);
	wire reads = state == FIRST || state == UP || state == DOWN || state == NEXT;
	wire got = reads && (skip || (waiting && answer));
	wire [511:0] value = skip ? 512'd0 : answer_data;
	integer i;

	control #(.NARGS(6)) window (
		.clk(clk), .rst(rst), .wr_valid(wr_valid), .wr_reg(wr_reg), .wr_data(wr_data), .rd_reg(rd_reg), .rd_data(rd_data),
		.args(args), .start(start), .finished(state == END), .refused(bad));

	assign req = (reads && !skip && !waiting) || state == WRITE;
	assign we = state == WRITE;
	assign addr = state == WRITE ? out + at
		    : state == UP ? in + at - row_bytes
		    : state == DOWN ? in + at + row_bytes
		    : state == NEXT ? in + at + 64 : in + at;
	assign lanes = 16'hffff;

	reg [511:0] result;
	always @* begin
		for (i = 0; i < 16; i = i + 1)
			result[32*i +: 32] = (centre[32*i +: 32] << 2) - up[32*i +: 32] - down[32*i +: 32]
				- (i == 0 ? prior : centre[32*(i == 0 ? 0 : i - 1) +: 32])
				- (i == 15 ? next[31:0] : centre[32*(i == 15 ? 15 : i + 1) +: 32]);
	end
	assign data = result;

	always @(posedge clk) begin
		if (rst) begin
			state <= IDLE;
			waiting <= 0;
			bad <= 0;
		end else begin
			if (reads && !skip && !waiting && taken) waiting <= 1;
			if (got) waiting <= 0;
			case (state)
			IDLE: if (start) begin
				at <= 0;
				column <= 0;
				row <= 0;
				prior <= 0;
				bad <= !fits;
				state <= fits && bytes != 0 ? FIRST : END;
			end
			FIRST: if (got) begin
				centre <= value;
				state <= UP;
			end
			UP: if (got) begin
				up <= value;
				state <= DOWN;
			end
			DOWN: if (got) begin
				down <= value;
				state <= NEXT;
			end
			NEXT: if (got) begin
				next <= value;
				state <= WRITE;
			end
			WRITE: if (taken) begin
				at <= at + 64;
				centre <= next;
				prior <= last_column ? 32'd0 : centre[511:480];
				column <= last_column ? 32'd0 : column + 1;
				row <= last_column ? row + 1 : row;
				state <= !last_column ? UP : last_row ? END : FIRST;
			end
			default: state <= IDLE;
			endcase
		end
	end
endmodule
